/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DAXMAP_CTL_STATS_H
#define DAXMAP_CTL_STATS_H

/** ctl_stats_main() - daxmapctl stats; exit status. */
int ctl_stats_main(int argc, char **argv);

#endif
