// HTTP/1.1 by libmicrohttpd: a thread a connection, requests that are whole before they are answered, and answers as a
// whole or in pieces. All that a stranger sends is bounded here: connections, bytes, and the time that they take.
#pragma once
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct Http Http;

enum { HTTP_HEADERS = 32 << 10 };

typedef struct HttpLimits {
  int connections;       // at a time; more are closed at once
  size_t body, bodies;   // bytes of a request's body, and of all that are held at a time
  double header_seconds; // from the begin of a connection until its first request's headers are there
  double idle_seconds;   // from an answer until the next request's headers are there
  double body_seconds;   // from the headers until the whole body is there
  int read_seconds;      // that a client may read nothing of its answer
} HttpLimits;

// A request, and its answer. It belongs to its connection's thread.
typedef struct HttpExchange {
  const char *method, *path;
  char *body;   // of `bytes` bytes, and a 0 after them; NULL: there is none, or it was not kept
  size_t bytes;
  bool too_large, too_busy; // it was not kept: it, or all bodies together, would be too large
  bool headers_too_large;   // more than HTTP_HEADERS bytes, with the request's first line
  int status;   // of the answer; 0: there is none yet
  int socket;
  void *connection, *http; // for http.c, as is what follows
  size_t room;
  bool keeps;
} HttpExchange;

typedef struct HttpHandler {
  void *context;
  bool (*wants)(void *context, const HttpExchange *exchange); // by its headers: whether its body is to be kept
  void (*answer)(void *context, HttpExchange *exchange);      // replies once. All in any thread
  void (*over)(void *context, const HttpExchange *exchange);  // the answer is sent, or cannot be
} HttpHandler;

typedef struct HttpPlace { const char *host; int port; } HttpPlace; // port 0: any that is free

bool http_is_built(void);
const char *http_version(void); // NULL: it was not built in, or cannot be loaded
int http_check(Error *error);   // PLAIT_BAD_INPUT: without libmicrohttpd; what to install

// Listens, and answers from then on. PLAIT_BAD_INPUT: the host is not an address of this machine; PLAIT_FAILED: the
// port is taken. The handler's functions may be called before it returns.
int http_open(Http **http, const HttpPlace *place, const HttpLimits *limits, const HttpHandler *handler, Error *error);
int http_port(const Http *http); // that it listens on
void http_close(Http *http);     // ends all connections; NULL is fine

const char *http_header(const HttpExchange *exchange, const char *name); // NULL: none

// Answers. headers: pairs of a name and a value, ended by NULL; may be NULL. The text is copied.
void http_reply(HttpExchange *exchange, int status, const char *type, const char *text, size_t bytes,
                const char *const *headers);
// An answer in pieces. read fills out[0, room) and may wait (http_wait); HTTP_END ends the answer, HTTP_LEFT the
// connection. `done` is called at last, whatever happens.
enum { HTTP_END = -1, HTTP_LEFT = -2 };
typedef struct HttpStream {
  void *context;
  ssize_t (*read)(void *context, char *out, size_t room);
  void (*done)(void *context);
} HttpStream;
void http_stream(HttpExchange *exchange, int status, const char *type, const HttpStream *stream,
                 const char *const *headers);

// Waits until `wake`, an eventfd, is written (which reads it), or this number of seconds. LEFT: the client has closed
// its connection.
typedef enum HttpWait { HTTP_WOKEN, HTTP_WAITED, HTTP_CLIENT_LEFT } HttpWait;
HttpWait http_wait(int socket, int wake, double seconds);
