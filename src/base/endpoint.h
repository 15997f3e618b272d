// Where something listens, as text: HOST:PORT, [IPv6]:PORT, IPv6:PORT. One parser for all options, variables and URLs
// that name such places, and one printer, whose text the parser reads.
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum { ENDPOINT_HOST = 256, ENDPOINT_TEXT = ENDPOINT_HOST + 10 };

typedef struct Endpoint {
  char host[ENDPOINT_HOST]; // a name, or an address; IPv6 without brackets, with %SCOPE where it was written
  int port;                 // 1 … 65535; 0: none was written
} Endpoint;

// The first `length` bytes of the text. Without brackets `::1:2379` has two meanings. If a port must be there, the port
// follows the last colon; otherwise a text that is an IPv6 address as a whole has no port. Returns false where the text
// is not an endpoint, or lacks a port that must be there.
bool endpoint_parse(const char *text, size_t length, bool port_must_be_there, Endpoint *endpoint);
// "hostA:29400", "[::1]:29400"; port 0: "hostA", "[::1]". Returns text.
const char *endpoint_print(const char *host, int port, char text[ENDPOINT_TEXT]);
