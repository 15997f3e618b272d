// Chains of kept pages by hash, and a list of unused pages in the order of their release.
#include "infer/pages.h"
#include "base/error.h"
#include "base/fault.h"
#include <stdlib.h>
#include <string.h>

void page_pool_create(PagePool *p, int count, int length) {
  *p = (PagePool){.count = count, .length = length, .chains = 1, .oldest = -1, .newest = -1};
  while (p->chains < count) p->chains *= 2;
  p->page = xcalloc((size_t)count, sizeof *p->page);
  p->tokens = xcalloc((size_t)count * (size_t)length, sizeof *p->tokens);
  p->chain = xcalloc((size_t)p->chains, sizeof *p->chain);
  memset(p->chain, -1, sizeof *p->chain * (size_t)p->chains);
  for (int i = 0; i < count; i++) {
    p->page[i].users = 1;
    page_release(p, i);
  }
}

void page_pool_destroy(PagePool *p) {
  free(p->page);
  free(p->tokens);
  free(p->chain);
  *p = (PagePool){0};
}

// ---- unused pages

static void unlink_unused(PagePool *p, int32_t id) {
  Page *page = &p->page[id];
  *(page->older >= 0 ? &p->page[page->older].newer : &p->oldest) = page->newer;
  *(page->newer >= 0 ? &p->page[page->newer].older : &p->newest) = page->older;
  p->unused--;
}

// Empty pages are the first to be taken.
static void link_unused(PagePool *p, int32_t id) {
  Page *page = &p->page[id];
  page->older = page->kept ? p->newest : -1;
  page->newer = page->kept ? -1 : p->oldest;
  *(page->older >= 0 ? &p->page[page->older].newer : &p->oldest) = id;
  *(page->newer >= 0 ? &p->page[page->newer].older : &p->newest) = id;
  p->unused++;
}

void page_release(PagePool *p, int32_t id) {
  CHECK(p->page[id].users > 0);
  if (!--p->page[id].users) link_unused(p, id);
}

void page_use(PagePool *p, int32_t id) {
  if (!p->page[id].users++) unlink_unused(p, id);
}

// ---- kept pages

static int32_t *chain_of(const PagePool *p, int32_t parent, const int32_t *tokens) {
  uint64_t hash = (uint64_t)parent + 1;
  for (int i = 0; i < p->length; i++) hash = (hash ^ (uint64_t)(uint32_t)tokens[i]) * 0x9e3779b97f4a7c15u;
  return &p->chain[(hash >> 32) & (uint64_t)(p->chains - 1)];
}

static const int32_t *tokens_of(const PagePool *p, int32_t id) { return p->tokens + (size_t)id * (size_t)p->length; }

static bool follows(const PagePool *p, int32_t id, int32_t parent, const int32_t *tokens) {
  const Page *page = &p->page[id];
  if (page->parent != parent) return false;
  if (parent >= 0 && FAULT(parents_never_change, page->parent_age != p->page[parent].age, false)) return false;
  return !memcmp(tokens_of(p, id), tokens, sizeof *tokens * (size_t)p->length);
}

int32_t page_match(const PagePool *p, int32_t parent, const int32_t *tokens) {
  for (int32_t id = *chain_of(p, parent, tokens); id >= 0; id = p->page[id].next)
    if (FAULT(page_hash_is_enough, follows(p, id, parent, tokens), true)) return id;
  return -1;
}

static void forget(PagePool *p, int32_t id) {
  int32_t *at = chain_of(p, p->page[id].parent, tokens_of(p, id));
  while (*at != id) at = &p->page[*at].next;
  *at = p->page[id].next;
  p->page[id].kept = false;
}

int32_t page_take(PagePool *p) {
  int32_t id = p->oldest;
  if (id < 0) return -1;
  if (p->page[id].kept) forget(p, id);
  p->page[id].age++;
  page_use(p, id);
  return id;
}

int32_t page_keep(PagePool *p, int32_t id, int32_t parent, const int32_t *tokens) {
  Page *page = &p->page[id];
  if (page->kept) return id;
  int32_t same = page_match(p, parent, tokens);
  if (same >= 0) {
    page_use(p, same);
    page_release(p, id);
    return same;
  }
  page->kept = true;
  page->parent = parent;
  page->parent_age = parent >= 0 ? p->page[parent].age : 0;
  memcpy(p->tokens + (size_t)id * (size_t)p->length, tokens, sizeof *tokens * (size_t)p->length);
  int32_t *first = chain_of(p, parent, tokens);
  page->next = *first;
  *first = id;
  return id;
}
