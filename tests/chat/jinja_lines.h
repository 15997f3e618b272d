// Lines of {"template", "variables"} rendered, for the tests that compare with Python's jinja2.
#pragma once
#include "chat/jinja.h"

json_t *jinja_line(const json_t *line); // {"text" or "error", "parts": [[end, origin], …]}; the caller owns it
int jinja_lines(const char *path);      // all lines of a file to stdout; the exit status
