"""A local web page that plans fleets and shows runs. Only the command line imports it, and it needs aiohttp."""
