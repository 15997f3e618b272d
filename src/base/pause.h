// The pause of a thread between two looks at a word that another thread will change.
#pragma once

static inline void cpu_pause(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb"); // takes about as long as x86's; yield takes no time on most cores
#endif
}
