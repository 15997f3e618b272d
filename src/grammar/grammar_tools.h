// Calls of tools in an answer: the form in which a model's family writes them, and the grammar that holds their
// arguments to the tools' schemas.
#pragma once
#include "grammar/grammar.h"

typedef enum ToolForm {
  TOOLS_HERMES, // Qwen, Hermes: <tool_call>\n{"name": …, "arguments": {…}}\n</tool_call>, any number of them
  TOOLS_LLAMA,  // Llama 3: the whole answer is {"name": …, "parameters": {…}}
  TOOLS_QWEN_XML, // <tool_call>, <function=NAME>, <parameter=KEY>, VALUE, </parameter> …, each on a line of its own
  TOOLS_GLM,      // <tool_call>NAME, then lines of <arg_key>KEY</arg_key> and <arg_value>VALUE</arg_value>
  TOOLS_MISTRAL // [TOOL_CALLS][{"name": …, "arguments": {…}}, …] at the end of the answer
} ToolForm;

// TOOLS_AUTO: free text, in which the form's trigger (<tool_call>, {"name" as the beginning of the answer,
// [TOOL_CALLS]) begins a call. TOOLS_REQUIRED: a call at once.
typedef enum ToolChoice { TOOLS_AUTO, TOOLS_REQUIRED } ToolChoice;
typedef struct ToolOptions {
  ToolForm form;
  ToolChoice choice;
  const char *only; // the name of the one tool that may be called; NULL: any
  bool parallel;    // several calls in one answer; not in Llama 3's form
  // With TOOLS_AUTO: an answer that calls nothing is a document of this schema, whose path is `where`. NULL: any text.
  const json_t *schema;
  const char *where;
} ToolOptions;

// tools: OpenAI's list, [{"type": "function", "function": {"name": …, "parameters": SCHEMA}}, …]; without parameters a
// tool has none. A refusal has a code and a sentence as in grammar.h: "tools.0.function.parameters.not …".
int grammar_from_tools(Grammar **g, const json_t *tools, const ToolOptions *options, Error *error);
