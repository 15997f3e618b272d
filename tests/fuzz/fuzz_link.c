// Frames of a connection between two ranks. The first byte of the input chooses the end that reads them: o what its
// opener sends, i what its receiver answers. A receive from each side of a row of bytes that must not be written is
// posted: only messages that are right may fill it.
#include "comm/link.h"
#include "fuzz.h"
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TAGS = 8, BYTES = 9 };

// All that is said, in parts, so that heads are cut.
static void say(int fd, const uint8_t *data, size_t size, unsigned (*turn)(void *end), void *end) {
  while (size) {
    size_t part = 1 + data[0] % 97;
    if (part > size) part = size;
    ssize_t n = send(fd, data, part, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n <= 0) return;
    data += n, size -= (size_t)n;
    turn(end);
  }
}

static unsigned turn_in(void *in) { return link_in_read(in); }
static unsigned turn_out(void *out) { return link_out_read(out) + link_out_write(out); }

static void receive(int fd[2], const uint8_t *data, size_t size) {
  Match *match = xcalloc(1, sizeof *match);
  LinkIn *in = link_in_create(channel_open(fd[1], true, NULL), false, 0, match);
  unsigned char memory[TAGS][BYTES + 2];
  WirePiece piece[TAGS];
  LinkMessage m[TAGS];
  memset(memory, 0xee, sizeof memory);
  for (uint64_t tag = 0; tag < TAGS; tag++) {
    piece[tag] = (WirePiece){memory[tag] + 1, BYTES};
    m[tag] = link_message(&piece[tag], 1);
    link_receive(match, &m[tag], tag, tag % 2 ? 0 : MATCH_ANY);
  }
  say(fd[0], data, size, turn_in, in);
  for (int i = 0; i < TAGS; i++) {
    CHECK(memory[i][0] == 0xee && memory[i][BYTES + 1] == 0xee && m[i].moved <= BYTES);
    CHECK(!m[i].done || m[i].moved == BYTES || m[i].status == LINK_LENGTH);
  }
  link_in_destroy(in);
  free(match);
}

static void answer(int fd[2], const uint8_t *data, size_t size) {
  static unsigned char memory[LINK_FIRST + 10];
  WirePiece piece = {memory, sizeof memory}, small = {memory, 4};
  LinkMessage one = link_message(&piece, 1), other = link_message(&small, 1);
  LinkOut *out = link_out_create(channel_open(fd[1], false, NULL), false, 1);
  other.answer = true;
  link_send(out, &one);
  link_send(out, &other);
  say(fd[0], data, size, turn_out, out);
  CHECK(out->shorts <= LINK_SHORTS && out->longs <= LINK_LONGS && out->heads <= LINK_HEADS);
  link_out_destroy(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  int fd[2];
  unsigned choice = fuzz_byte(&data, &size);
  CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, fd));
  if (choice == 'o') receive(fd, data, size);
  else answer(fd, data, size);
  close(fd[0]);
  return 0;
}
