// Calls of tools in XML, as nodes of a grammar. For grammar_tools.c only.
#pragma once
#include "grammar/grammar_nodes.h"
#include "grammar/grammar_tools.h"

bool grammar_is_xml(ToolForm form);
// A call of a function, from after <tool_call> to </tool_call>. `where`: the path of its parameters, which may be
// NULL. Negative: refused.
int grammar_xml_call(Grammar *g, ToolForm form, const json_t *name, const json_t *parameters, const char *where,
                     Error *error);
