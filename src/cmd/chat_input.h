// plait chat: what the user types, or a pipe holds, message by message.
#pragma once
#include "tokenizer/bpe.h"
#include <stdbool.h>

typedef struct ChatInput {
  ByteVector read; // what has been read and is not given out yet
  bool ended, tells; // tells: somebody types, and is shown where
} ChatInput;

typedef enum ChatInputEnd { INPUT_MESSAGE, INPUT_ENDED, INPUT_STOPPED } ChatInputEnd;

// The next message, without its line's end: a line; with those after it where it ends with a backslash; or all lines
// between two lines """. Empty ones are passed over. INPUT_STOPPED: a signal other than Ctrl-C has come.
ChatInputEnd chat_input_next(ChatInput *input, ByteVector *message);
