/* SPDX-License-Identifier: Apache-2.0 */
/* UTIL_SANITIZED: this is built with the address or the thread sanitizer, of gcc or clang. */
#ifndef DAXMAP_UTIL_SANITIZE_H
#define DAXMAP_UTIL_SANITIZE_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UTIL_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define UTIL_SANITIZED 1
#endif
#endif

#endif
