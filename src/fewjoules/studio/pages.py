"""The HTML around every view. All that files hold is put in by scripts, as text."""

import html

from aiohttp import web

VIEWS = {"plan": "Plan", "runs": "Runs"}


def shell(view: str, title: str, main: str = "") -> web.Response:
    """Return the page of a view; its script is ``static/VIEW/view.js``, its style ``static/VIEW/view.css``.

    ``main`` is HTML of our own that the script fills.
    """
    links = "".join(
        f'<a href="/{name}"{" aria-current=page" if name == view else ""}>{words}</a>' for name, words in VIEWS.items()
    )
    text = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)} - FewJoules studio</title>
<link rel="icon" href="/static/icon.svg">
<link rel="stylesheet" href="/static/app.css">
<link rel="stylesheet" href="/static/{view}/view.css">
<script src="/static/theme.js"></script>
<script src="/plotly.js" defer></script>
<script src="/static/{view}/view.js" type="module"></script>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header class="top">
<p class="brand"><img src="/static/icon.svg" alt="" width="22" height="22">FewJoules <span>studio</span></p>
<nav aria-label="Views">{links}</nav>
<button type="button" id="theme" aria-pressed="false">Dark</button>
</header>
<main id="main" tabindex="-1">
{main}
</main>
<noscript><p class="notice">The studio needs JavaScript.</p></noscript>
</body>
</html>
"""
    return web.Response(text=text, content_type="text/html")
