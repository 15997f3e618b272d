#include "stranger.h"
#include <poll.h>
#include <stdlib.h>

void stranger_invite(Meeting *meeting, PlaitWorld *world) {
  net_address(world, meeting->address, sizeof meeting->address);
  meeting->there = 1;
}

#ifdef PLAIT_UCX
#include "base/hash.h"
#include "comm/net_tag.h"
#include "comm/net_ucx.h"

enum { SMALL = 1 << 7, EAGER = 1 << 16, LONG = 1 << 21, TAGS = 8, CONTEXT_COUNT = 4 };

typedef struct Stranger {
  const Ucx *ucx;
  ucp_worker_h worker;
  ucp_ep_h rank;
  Meeting *meeting;
} Stranger;

static int come(Stranger *s) {
  Error error = {0};
  ucp_config_t *config;
  ucp_context_h context;
  ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
  ucp_worker_params_t worker = {0};
  ucp_ep_params_t to = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                        .address = (const ucp_address_t *)s->meeting->address,
                        // UCX does not take shared memory for it, which is the only way to ranks of one machine
                        .err_mode = getenv("UCX_TLS") ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE};
  return !ucx_load(&s->ucx, &error) && s->ucx->ucp_config_read(NULL, NULL, &config) == UCS_OK &&
         s->ucx->ucp_config_modify(config, "NET_DEVICES", "lo") == UCS_OK &&
         s->ucx->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context) == UCS_OK &&
         s->ucx->ucp_worker_create(context, &worker, &s->worker) == UCS_OK &&
         s->ucx->ucp_ep_create(s->worker, &to, &s->rank) == UCS_OK;
}

// Whether the message could be sent, which is waited for.
static int say(Stranger *s, ucp_tag_t tag, size_t bytes) {
  static const char data[LONG] = "what no rank says";
  ucp_request_param_t none = {0};
  void *request = s->ucx->ucp_tag_send_nbx(s->rank, data, bytes, tag, &none);
  s->ucx->ucp_worker_progress(s->worker);
  if (!UCS_PTR_IS_PTR(request)) return !UCS_PTR_IS_ERR(request);
  while (!s->meeting->over && s->ucx->ucp_request_check_status(request) == UCS_INPROGRESS)
    s->ucx->ucp_worker_progress(s->worker);
  s->ucx->ucp_request_free(request);
  return 1;
}

int stranger_sends(Meeting *meeting, int ranks) {
  Stranger s = {.meeting = meeting};
  uint64_t number = 1;
  while (!meeting->there && !meeting->over) poll(NULL, 0, 5);
  if (!come(&s)) return 1;
  for (int good = 1; good && !meeting->over;) {
    for (ucp_tag_t context = 0; context < CONTEXT_COUNT; context++)
      for (ucp_tag_t from = 0; from < (ucp_tag_t)ranks; from++)
        for (ucp_tag_t tag = 0; tag < TAGS && good; tag++)
          good = say(&s, (context << RANK_BITS | from) << TAG_BITS | tag, SMALL);
    for (int i = 0; i < TAGS && good; i++) good = say(&s, number = hash_mix(number, 1), SMALL);
    good = good && say(&s, 0, EAGER) && say(&s, 1, LONG);
  }
  return !meeting->over;
}
#else
int stranger_sends(Meeting *meeting, int ranks) { return 0; }
#endif
