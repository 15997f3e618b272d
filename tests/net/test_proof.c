// tier 1
// Proofs of a secret on a connection (net/proof.h), and SHA-256 and HMAC by the vectors of FIPS 180-4 and RFC 4231.
#include "base/clock.h"
#include "net/proof.h"
#include "net/sha256.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

// SHA-256 -----------------------------------------------------------------------------------------------------------

static const char *hex(const unsigned char digest[SHA256_BYTES]) {
  static char text[2 * SHA256_BYTES + 1];
  for (int i = 0; i < SHA256_BYTES; i++) sprintf(text + 2 * i, "%02x", digest[i]);
  return text;
}

// In pieces of `piece` bytes.
static const char *hash_of(const void *data, size_t bytes, size_t piece) {
  unsigned char digest[SHA256_BYTES];
  Sha256 s;
  sha256_begin(&s);
  for (size_t at = 0; at < bytes; at += piece)
    sha256_add(&s, (const char *)data + at, bytes - at < piece ? bytes - at : piece);
  sha256_end(&s, digest);
  return hex(digest);
}

static void hashes(void **state) {
  const struct { const char *text, *digest;
  } cases[] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrst"
       "u",
       "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (size_t piece = 1; piece <= 113; piece++)
      assert_string_equal(hash_of(cases[i].text, strlen(cases[i].text), piece), cases[i].digest);
  char *million = malloc(1000000);
  memset(million, 'a', 1000000);
  assert_string_equal(hash_of(million, 1000000, 999),
                      "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  free(million);
}

static const char *code_of(const void *key, size_t key_bytes, const void *data, size_t bytes) {
  unsigned char code[SHA256_BYTES];
  Hmac h;
  hmac_begin(&h, key, key_bytes);
  hmac_add(&h, data, bytes / 2);
  hmac_add(&h, (const char *)data + bytes / 2, bytes - bytes / 2);
  hmac_end(&h, code);
  return hex(code);
}

// Cases 1 to 4, 6 and 7 of RFC 4231.
static void codes(void **state) {
  unsigned char key[131], data[50];
  memset(key, 0x0b, 20);
  assert_string_equal(code_of(key, 20, "Hi There", 8),
                      "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  assert_string_equal(code_of("Jefe", 4, "what do ya want for nothing?", 28),
                      "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  memset(key, 0xaa, sizeof key), memset(data, 0xdd, sizeof data);
  assert_string_equal(code_of(key, 20, data, sizeof data),
                      "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  static const char six[] = "Test Using Larger Than Block-Size Key - Hash Key First",
                    seven[] = "This is a test using a larger than block-size key and a larger than block-size data. "
                              "The key needs to be hashed before being used by the HMAC algorithm.";
  assert_string_equal(code_of(key, 131, six, strlen(six)),
                      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  assert_string_equal(code_of(key, 131, seven, strlen(seven)),
                      "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
  for (int i = 0; i < 25; i++) key[i] = (unsigned char)(i + 1);
  memset(data, 0xcd, sizeof data);
  assert_string_equal(code_of(key, 25, data, sizeof data),
                      "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
}

// Two ends in memory ------------------------------------------------------------------------------------------------

static const Secret secret = {{1, 2, 3}}, other = {{1, 2, 4}};

static ProofTerms terms_of(const Secret *key, uint64_t word) {
  return (ProofTerms){.secret = key, .purpose = "test", .words = {word, 7, 8, UINT64_MAX}};
}

// A byte of what one side sends, counted from 0, that the network changes or after which it cuts the connection.
typedef struct Harm { bool of_server, cuts; long at; unsigned char flip; } Harm;
static const Harm unharmed = {.at = -1};
typedef struct Line { unsigned char record[2 * PROOF_MOST]; long bytes; } Line; // what one side has sent

// Moves what one side has to say to the other, `piece` bytes at a time. Whether anything has moved.
static bool move(Proof *from, Proof *to, Line *line, const Harm *harm, size_t piece) {
  size_t bytes, room;
  if (proof_state(from) != PROOF_WRITES || proof_state(to) != PROOF_READS) return false;
  const unsigned char *data = proof_output(from, &bytes);
  unsigned char *where = proof_input(to, &room);
  if (bytes > room) bytes = room;
  if (bytes > piece) bytes = piece;
  memcpy(where, data, bytes);
  for (size_t i = 0; i < bytes; i++) {
    line->record[line->bytes++] = data[i];
    if (harm->of_server == from->is_server && harm->at == line->bytes - 1) {
      if (!harm->cuts) where[i] ^= harm->flip;
      else return proof_ended(from), proof_ended(to), false;
    }
  }
  proof_sent(from, bytes);
  proof_received(to, bytes);
  return true;
}

// Until neither has anything to say. Who waits in vain then sees the end of the connection.
static void talk(Proof *server, Proof *client, Line lines[2], const Harm *harm, size_t piece) {
  memset(lines, 0, 2 * sizeof *lines);
  while (move(server, client, &lines[0], harm, piece) || move(client, server, &lines[1], harm, piece)) continue;
  if (proof_state(server) == PROOF_READS || proof_state(server) == PROOF_WRITES) proof_ended(server);
  if (proof_state(client) == PROOF_READS || proof_state(client) == PROOF_WRITES) proof_ended(client);
}

static void meet(Proof *server, Proof *client, const ProofTerms *a, const ProofTerms *b, Line lines[2]) {
  proof_begin(server, a, true);
  proof_begin(client, b, false);
  talk(server, client, lines, &unharmed, 1000);
}

static void assert_refused(const Proof *p, ProofRefusal why, const char *words) {
  assert_int_equal(proof_state(p), PROOF_REFUSED);
  assert_int_equal(p->refusal, why);
  assert_string_equal(proof_reason(p), words);
}

static void both_have_it(void **state) {
  Proof server, client;
  Line lines[2];
  const ProofTerms a = terms_of(&secret, 1), b = terms_of(&secret, 2);
  for (size_t piece = 1; piece < PROOF_MOST; piece++) {
    proof_begin(&server, &a, true);
    proof_begin(&client, &b, false);
    assert_int_equal(proof_state(&server), PROOF_WRITES);
    assert_int_equal(proof_state(&client), PROOF_READS); // it says nothing to what does not speak first
    talk(&server, &client, lines, &unharmed, piece);
    assert_int_equal(proof_state(&server), PROOF_DONE);
    assert_int_equal(proof_state(&client), PROOF_DONE);
    assert_int_equal(proof_words(&server)[0], 2);
    assert_int_equal(proof_words(&client)[0], 1);
    assert_int_equal(proof_words(&client)[3], UINT64_MAX);
    assert_int_equal(lines[0].bytes, sizeof(ProofHello) + sizeof(ProofVerdict));
    assert_int_equal(lines[1].bytes, sizeof(ProofClaim));
  }
}

static void another_secret(void **state) {
  Proof server, client;
  Line lines[2];
  const ProofTerms a = terms_of(&secret, 1), b = terms_of(&other, 2);
  meet(&server, &client, &a, &b, lines);
  assert_refused(&server, REFUSAL_SECRET, "does not have the secret of this job");
  assert_refused(&client, REFUSAL_SECRET, "does not have the secret of this job");
  static const unsigned char none[PROOF_BYTES];
  const ProofVerdict *told = (const void *)(lines[0].record + sizeof(ProofHello));
  assert_memory_equal(told->proof, none, sizeof none); // nothing that was made with the secret
}

// A server that lacks the secret, but says that all is well.
static void a_server_without(void **state) {
  Proof server, client;
  Line lines[2];
  const ProofTerms a = terms_of(&other, 1), b = terms_of(&secret, 2);
  proof_begin(&server, &a, true);
  proof_begin(&client, &b, false);
  while (move(&server, &client, &lines[0], &unharmed, 1000)) continue;
  ProofVerdict verdict = {.refusal = REFUSAL_NONE};
  size_t bytes;
  proof_output(&client, &bytes);
  proof_sent(&client, bytes);
  memcpy(proof_input(&client, &bytes), &verdict, sizeof verdict);
  proof_received(&client, bytes);
  assert_refused(&client, REFUSAL_SECRET, "does not have the secret of this job");
}

static void another_purpose(void **state) {
  Proof server, client;
  Line lines[2];
  ProofTerms a = terms_of(&secret, 1), b = a;
  b.purpose = "text";
  meet(&server, &client, &a, &b, lines);
  assert_int_equal(server.refusal, REFUSAL_SECRET);
  assert_int_equal(client.refusal, REFUSAL_SECRET);
}

static void another_version(void **state) {
  Proof server, client;
  Line lines[2];
  ProofTerms a = terms_of(&secret, 1), b = a;
  a.version = "1.2", b.version = "1.10";
  meet(&server, &client, &a, &b, lines);
  assert_refused(&server, REFUSAL_VERSION, "is plait 1.10, and this is plait 1.2");
  assert_refused(&client, REFUSAL_VERSION, "is plait 1.2, and this is plait 1.10");
  static const unsigned char none[PROOF_BYTES];
  assert_memory_equal(((ProofClaim *)(void *)lines[1].record)->proof, none, sizeof none);
  for (int of_server = 0; of_server < 2; of_server++) { // a later protocol, whose hello may be longer
    proof_begin(&server, &a, true);
    proof_begin(&client, &b, false);
    ProofHello *hello = of_server ? &server.out.claim.hello : &client.mine;
    hello->protocol = PROOF_PROTOCOL + 1;
    talk(&server, &client, lines, &unharmed, 1000);
    if (!of_server) assert_refused(&server, REFUSAL_VERSION, "is plait 1.10, and this is plait 1.2");
    else assert_refused(&client, REFUSAL_VERSION, "is plait 1.2, and this is plait 1.10");
  }
  a.version = b.version = "1.2";
  proof_begin(&server, &a, true);
  proof_begin(&client, &b, false);
  server.out.claim.hello.protocol = 5;
  talk(&server, &client, lines, &unharmed, 1000);
  assert_refused(&client, REFUSAL_VERSION, "is plait 1.2 with protocol 5 of connections, and this has protocol 1");
}

static bool says_2(const uint64_t words[PROOF_WORDS], const void *context) {
  ++*(int *)(uintptr_t)context;
  return words[0] == 2;
}

static void words(void **state) {
  Proof server, client;
  Line lines[2];
  int asked = 0;
  ProofTerms a = terms_of(&secret, 1), b = terms_of(&secret, 2), c = terms_of(&secret, 3), d = terms_of(&other, 2);
  a.expects = says_2, a.context = &asked;
  meet(&server, &client, &a, &b, lines);
  assert_int_equal(proof_state(&server), PROOF_DONE);
  meet(&server, &client, &a, &c, lines);
  assert_refused(&server, REFUSAL_WORDS, "is not whom this connection is for");
  assert_refused(&client, REFUSAL_WORDS, "is not whom this connection is for");
  assert_int_equal(asked, 2);
  meet(&server, &client, &a, &d, lines);
  assert_int_equal(asked, 2); // words without a proof are not looked at
  c.expects = says_2, c.context = &asked;
  meet(&server, &client, &b, &c, lines);
  assert_int_equal(proof_state(&client), PROOF_DONE);
  meet(&server, &client, &c, &c, lines); // of the client: the server is the first to see it
  assert_int_equal(server.refusal, REFUSAL_WORDS);
  a.expects = NULL;
  meet(&server, &client, &a, &c, lines);
  assert_refused(&client, REFUSAL_WORDS, "is not whom this connection is for");
}

// Strangers ---------------------------------------------------------------------------------------------------------

// Gives one end bytes, as many as it takes. How many these were.
static size_t feed(Proof *p, const unsigned char *data, size_t bytes) {
  size_t fed = 0;
  for (size_t room, n; fed < bytes; fed += n) {
    if (proof_state(p) == PROOF_WRITES) proof_output(p, &room), proof_sent(p, room);
    if (proof_state(p) != PROOF_READS) break;
    unsigned char *where = proof_input(p, &room);
    n = room < bytes - fed ? room : bytes - fed;
    memcpy(where, data + fed, n);
    proof_received(p, n);
  }
  if (proof_state(p) == PROOF_WRITES) {
    size_t room;
    proof_output(p, &room), proof_sent(p, room);
  }
  return fed;
}

static void recorded_bytes_prove_nothing(void **state) {
  Proof server, client;
  Line lines[2];
  const ProofTerms a = terms_of(&secret, 1), b = terms_of(&secret, 2);
  meet(&server, &client, &a, &b, lines);
  assert_int_equal(proof_state(&server), PROOF_DONE);
  proof_begin(&server, &a, true);
  feed(&server, lines[1].record, (size_t)lines[1].bytes);
  assert_refused(&server, REFUSAL_SECRET, "does not have the secret of this job");
  proof_begin(&client, &b, false);
  feed(&client, lines[0].record, (size_t)lines[0].bytes);
  assert_refused(&client, REFUSAL_SECRET, "does not have the secret of this job");
}

// A stranger at whose port a rank connects, and at a rank's port, who sends each side what that side has said.
static void own_bytes_prove_nothing(void **state) {
  Proof client, server;
  ProofVerdict verdict = {.refusal = REFUSAL_NONE};
  const ProofTerms a = terms_of(&secret, 1);
  proof_begin(&client, &a, false);
  ProofHello hello = client.mine;
  feed(&client, (const unsigned char *)&hello, sizeof hello); // the client's own hello, then its own proof
  memcpy(verdict.proof, client.out.claim.proof, PROOF_BYTES);
  feed(&client, (const unsigned char *)&verdict, sizeof verdict);
  assert_refused(&client, REFUSAL_SECRET, "does not have the secret of this job");
  proof_begin(&client, &a, false);
  hello.nonce[0] ^= 1; // a hello of the stranger's own, and the client's proof
  feed(&client, (const unsigned char *)&hello, sizeof hello);
  memcpy(verdict.proof, client.out.claim.proof, PROOF_BYTES);
  feed(&client, (const unsigned char *)&verdict, sizeof verdict);
  assert_refused(&client, REFUSAL_SECRET, "does not have the secret of this job");
  proof_begin(&server, &a, true);
  ProofClaim claim = {.hello = server.mine};
  feed(&server, (const unsigned char *)&claim, sizeof claim);
  assert_refused(&server, REFUSAL_SECRET, "does not have the secret of this job");
}

static void each_bit_counts(void **state) {
  Proof server, client;
  Line lines[2];
  const ProofTerms a = terms_of(&secret, 1), b = terms_of(&secret, 2);
  const long sends[2] = {sizeof(ProofClaim), sizeof(ProofHello) + sizeof(ProofVerdict)};
  for (int of_server = 0; of_server < 2; of_server++)
    for (long at = 0; at < sends[of_server]; at++)
      for (int bit = 0; bit < 8; bit++) {
        Harm harm = {.of_server = of_server, .at = at, .flip = (unsigned char)(1 << bit)};
        proof_begin(&server, &a, true);
        proof_begin(&client, &b, false);
        talk(&server, &client, lines, &harm, 1000);
        assert_int_equal(proof_state(of_server ? &client : &server), PROOF_REFUSED);
        bool is_verdict = of_server && at >= (long)sizeof(ProofHello);
        assert_int_equal(proof_state(&server), is_verdict ? PROOF_DONE : PROOF_REFUSED); // who has proved itself to it
        assert_int_equal(proof_state(&client), PROOF_REFUSED);
        assert_true(*proof_reason(&client));
      }
}

static void cut_off_anywhere(void **state) {
  Proof server, client;
  Line lines[2];
  const ProofTerms a = terms_of(&secret, 1), b = terms_of(&secret, 2);
  const long sends[2] = {sizeof(ProofClaim), sizeof(ProofHello) + sizeof(ProofVerdict)};
  for (int of_server = 0; of_server < 2; of_server++)
    for (long at = 0; at < sends[of_server]; at++) {
      Harm harm = {.of_server = of_server, .cuts = true, .at = at};
      proof_begin(&server, &a, true);
      proof_begin(&client, &b, false);
      talk(&server, &client, lines, &harm, 1);
      assert_int_equal(proof_state(&client), PROOF_REFUSED);
      assert_refused(&client, REFUSAL_LEFT, "has ended the connection");
      if (!of_server) assert_refused(&server, REFUSAL_LEFT, "has ended the connection");
    }
}

// Bytes of strangers are taken up to the byte at which it is wrong, and never more than a hello and a proof have.
static void what_is_not_plait(void **state) {
  unsigned char noise[4096];
  Proof p;
  const ProofTerms a = terms_of(&secret, 1);
  memset(noise, 'G', sizeof noise);
  for (int is_server = 0; is_server < 2; is_server++) {
    proof_begin(&p, &a, is_server);
    assert_int_equal(feed(&p, noise, sizeof noise), PROOF_HEAD);
    assert_refused(&p, REFUSAL_STRANGER, "is not plait");
  }
  ProofClaim claim;
  for (int what = 0; what < 4; what++) {
    proof_begin(&p, &a, true);
    claim = (ProofClaim){.hello = p.mine};
    if (what == 0) memset(claim.hello.version, 'v', PROOF_VERSION); // it does not end
    if (what == 1) claim.hello.version[1] = '\n';
    if (what == 2) claim.hello.version[PROOF_VERSION - 1] = 'x';
    if (what == 3) *claim.hello.version = 0;
    feed(&p, (const unsigned char *)&claim, sizeof claim);
    assert_refused(&p, REFUSAL_STRANGER, "is not plait");
  }
}

// Sockets -----------------------------------------------------------------------------------------------------------

static void on_sockets(void **state) {
  int ends[2], small = 1;
  const ProofTerms a = terms_of(&secret, 1), b = terms_of(&secret, 2);
  Proof server, client;
  char next[8] = "";
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  proof_begin(&server, &a, true);
  proof_begin(&client, &b, false);
  for (int i = 0; i < 10; i++) proof_advance(&server, ends[0]), proof_advance(&client, ends[1]);
  assert_int_equal(proof_state(&server), PROOF_DONE);
  assert_int_equal(proof_state(&client), PROOF_DONE);
  assert_int_equal(write(ends[0], "after", 6), 6); // belongs to who comes next
  assert_int_equal(proof_advance(&client, ends[1]), PROOF_DONE);
  assert_int_equal(read(ends[1], next, sizeof next), 6);
  close(ends[0]), close(ends[1]);

  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0); // who is told nothing more
  proof_begin(&client, &b, false);
  close(ends[0]);
  assert_int_equal(proof_advance(&client, ends[1]), PROOF_REFUSED);
  assert_int_equal(client.refusal, REFUSAL_LEFT);
  close(ends[1]);
}

static void by_a_deadline(void **state) {
  int ends[2];
  const ProofTerms a = terms_of(&secret, 1), b = terms_of(&secret, 2);
  Error error = {0};
  uint64_t theirs[PROOF_WORDS];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  assert_int_equal(proof_meet(ends[0], &a, true, clock_seconds(), NULL, &error), PLAIT_FAILED);
  assert_string_equal(error.message, "has not proved in time to have the secret");
  close(ends[0]), close(ends[1]);
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  pid_t child = fork();
  if (!child) _exit(proof_meet(ends[1], &b, false, clock_seconds() + 60, NULL, &error) ? 1 : 0);
  error = (Error){0};
  assert_int_equal(proof_meet(ends[0], &a, true, clock_seconds() + 60, theirs, &error), PLAIT_OK);
  assert_int_equal(theirs[0], 2);
  close(ends[0]), close(ends[1]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(hashes),
      cmocka_unit_test(codes),
      cmocka_unit_test(both_have_it),
      cmocka_unit_test(another_secret),
      cmocka_unit_test(a_server_without),
      cmocka_unit_test(another_purpose),
      cmocka_unit_test(another_version),
      cmocka_unit_test(words),
      cmocka_unit_test(recorded_bytes_prove_nothing),
      cmocka_unit_test(own_bytes_prove_nothing),
      cmocka_unit_test(each_bit_counts),
      cmocka_unit_test(cut_off_anywhere),
      cmocka_unit_test(what_is_not_plait),
      cmocka_unit_test(on_sockets),
      cmocka_unit_test(by_a_deadline),
  };
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, NULL, NULL);
}
