// A server of one model: its endpoints, who may use them, and the queue that leads to the engine.
#pragma once
#include "serve/model.h"
#include "serve/ticket_queue.h"

typedef struct ServeOptions {
  const char *host;
  int port;                 // 0: any that is free
  const char *key_file;     // a key a line; NULL: everybody may ask
  const char *allow_origin; // of pages of others that browsers may let ask; NULL: none
  int most;                 // choices that run or wait
} ServeOptions;

typedef struct ModelServer ModelServer;

// Listens, and says that it loads until model_server_ready. Everything is borrowed. PLAIT_BAD_INPUT: the host, or the
// file of keys.
int model_server_open(ModelServer **server, const ServeOptions *options, const ServedModel *model, Error *error);
void model_server_ready(ModelServer *server); // the model is loaded
TicketQueue *model_server_queue(ModelServer *server);
int model_server_port(const ModelServer *server);
void model_server_flush(ModelServer *server, double seconds); // waits until all answers are sent, but not longer
void model_server_close(ModelServer *server);                 // NULL is fine
