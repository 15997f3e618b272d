// Calls of tools in JSON that is still being written. For the parser of answers only.
#pragma once
#include "chat/chat_parser.h"

typedef enum CallScanStatus {
  CALL_IS_OPEN,  // it may become a call
  CALL_IS_NONE,  // it is none, whatever comes
  CALL_BEGINS,   // its name is known, and its arguments begin at `arguments`
  CALL_IS_WHOLE  // its name is known, and all of its arguments, if it has any
} CallScanStatus;

typedef struct CallScan {
  char *name; // owned, where it begins or is whole
  size_t name_bytes;
  size_t arguments, arguments_bytes; // their place; 0 bytes: none, or not whole
  size_t rest;                       // of a whole one: where its object is read on, before a comma or its end
} CallScan;

// Reads {"name": …, "arguments" or "parameters": …} from its {. Other keys are passed over, but for id and type only
// before the name is known: so JSON in a text that is not a call is told from one at its first key.
CallScanStatus call_scan(const char *text, size_t bytes, CallScan *scan);

// A value of JSON that comes in pieces.
typedef struct CallValue {
  int depth;
  bool begun, in_string, escaped, ended;
  char first;   // '{' and '[' are told as they come, others when they end
  ByteVector held;
} CallValue;
// Takes the bytes of the value, tells them as arguments of the call, and returns how many they are. A text is told as
// what it stands for; null as {}. last: nothing comes after these bytes.
size_t call_value_take(CallValue *v, const char *text, size_t bytes, bool last,
                       void (*told)(void *context, const ChatDelta *delta), void *context, int call);
// Passes over bytes until depth is 0, and returns how many they are.
size_t call_value_pass(CallValue *v, const char *text, size_t bytes);
