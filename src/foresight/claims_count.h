// The measures of the claims of claims.def. "A rank" is the busiest pipeline rank, unless another one is named.
#pragma once
#include "foresight/claims.h"

// Memory of a rank: claims_memory.c.
ClaimMeasure claim_states;            // GB of parameters, gradients and the optimizer's state
ClaimMeasure claim_bytes_a_parameter; // the same in bytes for each parameter of the model
ClaimMeasure claim_parameters;        // GB of parameters, with the copies to compute with
ClaimMeasure claim_activations;       // GB of slots, of the first pipeline rank
ClaimMeasure claim_part_of_matrix;    // the largest part of any layer's matrix that a rank stores

// Bytes that a rank sends in a step: claims_traffic.c.
ClaimMeasure claim_sent;         // GB of parameters and gradients
ClaimMeasure claim_sent_seconds; // the same at 10 Gb/s
ClaimMeasure claim_moved;        // GB of everything
ClaimCount claim_first_over_others;        // the first run's GB of everything divided by those of the two others
ClaimCount claim_zero_1_both_ways;         // parameters that ZeRO 1 sends by all_reduce, and by reduce_scatter
ClaimMeasure claim_all_reduced_gradients;  // of the gradients of weights that are reduced, the part by all_reduce, in %
ClaimMeasure claim_reduced_by_data_ranks;   // sums over dp of gradients of activations, in the backward of a microbatch
ClaimMeasure claim_reduced_by_tensor_ranks; // and over tp

// Which rank computes what: claims_work.c.
ClaimMeasure claim_layers_computed; // by a rank
ClaimMeasure claim_flops;           // of a rank in a step
ClaimMeasure claim_token_weight;    // of a token of the data rank that has the fewest, in a mean of the ranks' means,
                                    // in units of its weight in the mean of all

// Simulated on run.cluster: claims_time.c.
ClaimMeasure claim_step_seconds;
ClaimMeasure claim_utilisation; // model FLOPs over the devices' rate of products, %

// Replayed schedules, whose segments all take as long: claims_schedule.c.
ClaimMeasure claim_bubble;   // the part of all ranks' time in which they wait
ClaimMeasure claim_speed_up; // work of a step divided by its time: of a pipeline beside one device
