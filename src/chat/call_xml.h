// Calls of tools as XML that is still being written: of Qwen3-Coder, <function=NAME><parameter=KEY>VALUE</parameter>
// </function>, and of GLM-4.5, NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>. Both stand between <tool_call>
// and </tool_call>. For the parser of answers only.
#pragma once
#include "chat/call_scan.h"

// Reads up to the first parameter. CALL_BEGINS: the name is at name[0, name_bytes) of the text, and the parameters at
// `rest`. CALL_IS_OPEN and CALL_IS_NONE as call_scan. ended: no text follows.
typedef struct CallXmlName { size_t at, bytes, rest; } CallXmlName;
CallScanStatus call_xml_begin(ChatForm form, const char *text, size_t bytes, bool ended, CallXmlName *name);

// The parameters, which are told as an object of JSON.
typedef enum CallXmlState { XML_BETWEEN, XML_VALUE, XML_ENDED } CallXmlState;
typedef struct CallXml {
  ChatForm form;
  const json_t *parameters; // the schema of the function's; borrowed, may be NULL
  CallXmlState state;
  bool any;           // a parameter has come
  bool line_may_come; // the first line end of a value is not its own
  bool is_text;       // the value is told as it comes, as a text; others when they have ended
  unsigned kinds;     // of the value (call_kinds.h)
} CallXml;
// tools: those of the request, or NULL.
void call_xml_open(CallXml *x, ChatForm form, const json_t *tools, const char *name, size_t name_bytes);
// Takes bytes from the front of the text, tells what they say, and returns how many they are; the state is XML_ENDED
// where the call has. last: no text follows.
size_t call_xml_take(CallXml *x, const char *text, size_t bytes, bool last,
                     void (*told)(void *context, const ChatDelta *delta), void *context, int call);
