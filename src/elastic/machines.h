// The supervisor of one machine of several.
#pragma once
#include "elastic/supervisor.h"

// As launch_supervise, in a job of several machines. signals: of round_take_signals.
int machines_supervise(const LaunchOptions *options, int signals, int *status, Error *error);
