import "../base.js";
