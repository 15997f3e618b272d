// Advice: which strategy suits a model and machines. Rules that are widely told are said with the numbers of simulated
// rows, which confirm or contradict them.
#pragma once
#include "foresight/compare.h"

typedef enum AdviceRule {
#define ADVICE(id, ...) ADVICE_##id,
#include "foresight/advice.def"
#undef ADVICE
  ADVICES
} AdviceRule;
extern const char *const advice_names[ADVICES], *const advice_told[ADVICES];

typedef enum AdviceVerdict { ADVICE_OPEN, ADVICE_CONFIRMED, ADVICE_CONTRADICTED } AdviceVerdict; // OPEN: nothing that
                                                                                                 // is built shows it
const char *advice_verdict_name(AdviceVerdict verdict);

typedef struct Advice { AdviceRule rule; AdviceVerdict verdict; char text[700]; } Advice;

// The rules that apply, in the order of advice.def. advice: room for ADVICES. Returns how many. All numbers in the
// texts are of the comparison, its cluster's, or differences and ratios of these.
int advice_of(const Comparison *comparison, Advice *advice);
