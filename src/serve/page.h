// The page at the server's root (page.html, page.js) as a string.
#pragma once
extern const char serve_page[];
