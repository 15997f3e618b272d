// The pages of a cache in one row of the batch: which requests use them, and which still hold the keys and values of a
// text that may come again, so that they need not be computed twice (Kwon et al., "Efficient memory management for
// large language model serving with PagedAttention", 2023).
#pragma once
#include <stdbool.h>
#include <stdint.h>

typedef struct Page {
  int users;           // requests that read it
  bool kept;           // it is full, and page_match can find it
  uint32_t age;        // rises each time the page gets other content
  int32_t parent;      // of a kept page: the one before it in its text; -1: none
  uint32_t parent_age; // what the parent's age was then: it may have other content now
  int32_t next;        // in its chain
  int32_t older, newer; // in the list of pages without users
} Page;

typedef struct PagePool {
  int count, length; // pages, and tokens of a page
  Page *page;        // (count)
  int32_t *tokens;   // (count, length) of kept pages
  int chains;        // a power of two
  int32_t *chain;    // (chains) the first kept page with such a hash; -1: none
  int32_t oldest, newest; // of the pages without users
  int unused;             // pages without users, kept ones included: as many can be taken
} PagePool;

void page_pool_create(PagePool *pool, int count, int length);
void page_pool_destroy(PagePool *pool);

// An unused page, with one user: an empty one, else the one that was released longest ago, whose content is forgotten.
// -1: all are used.
int32_t page_take(PagePool *pool);
void page_release(PagePool *pool, int32_t page); // by one user; a kept page can be found until it is taken
// The kept page with these tokens (length) that follows `parent` (-1: that begins a text); -1: there is none. Hashes
// find it, and its tokens decide. page_use adds a user.
int32_t page_match(const PagePool *pool, int32_t parent, const int32_t *tokens);
void page_use(PagePool *pool, int32_t page);
// A used page is full now: from here on it can be found. Returns it, or a page with the same content that was kept
// before, to whose users the caller then belongs instead.
int32_t page_keep(PagePool *pool, int32_t page, int32_t parent, const int32_t *tokens);
