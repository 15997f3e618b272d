// Shared by products.c and trials.c.
#pragma once
#include "device/cuda/library.h"
#include "device/cuda/products.h"

enum { MOST_ALIGNED = 256 };

// A product of the library's, or one that it does not make (own).
typedef struct LibraryProduct {
  ProductKey key;
  int own;
  BlasProduct product;
  BlasLayout a, b, out; // as the library sees them
  BlasAlgorithm algorithm;
  size_t workspace; // bytes that it uses
} LibraryProduct;

// Ranks that share a device share it. mutex: of the list, and of what a call sets in a BlasProduct.
struct CudaProducts {
  const CudaBlas *blas;
  BlasHandle handle;
  pthread_mutex_t mutex;
  int is_warm; // the card has multiplied for a while
  Vec(LibraryProduct) list;
};

// Whether it stores, or reads, what its function is applied to.
static inline int has_before(const ProductKey *key) { return key->function >= PRODUCT_GELU_KEEPS; }
LibraryProduct *product_find(CudaProducts *p, const ProductKey *key); // NULL: there is none
void product_describe(const ProductKey *key, char *text, size_t size);
// Says that plait's own kernel makes such products, and why.
void product_note(const CudaInstance *instance, const ProductKey *key, const char *text);
// Describes x->key to the library, asks it for algorithms, the best by its own account first, and takes that.
BlasStatus product_open(const CudaProducts *p, LibraryProduct *x, BlasProposal *proposal, int most, int *count);
BlasStatus product_multiply(const CudaProducts *p, const LibraryProduct *x, const ProductArguments *a, void *workspace,
                            CudaStream stream);
void product_forget(const CudaBlas *blas, LibraryProduct *x); // it is plait's own from then on
// Names n elements as an operand of the next launch.
void product_name_array(Launch *l, const char *name, Array x, int64_t n, unsigned mode);
