/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A test that hangs says where: watchdog_start(seconds) prints a backtrace of every thread and
 * ends the process, unless watchdog_stop() came first.
 */
#ifndef DAXMAP_TESTS_WATCHDOG_H
#define DAXMAP_TESTS_WATCHDOG_H

void watchdog_start(unsigned int seconds);
void watchdog_stop(void);

#endif
