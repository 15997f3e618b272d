// Around the declarations of every public header: C linkage, and the only symbols that the shared library shows.
#pragma once

#if defined(__GNUC__)
#define PLAIT_VISIBLE_BEGIN _Pragma("GCC visibility push(default)")
#define PLAIT_VISIBLE_END _Pragma("GCC visibility pop")
#else
#define PLAIT_VISIBLE_BEGIN
#define PLAIT_VISIBLE_END
#endif

#ifdef __cplusplus
#define PLAIT_API_BEGIN extern "C" { PLAIT_VISIBLE_BEGIN
#define PLAIT_API_END PLAIT_VISIBLE_END }
#else
#define PLAIT_API_BEGIN PLAIT_VISIBLE_BEGIN
#define PLAIT_API_END PLAIT_VISIBLE_END
#endif
