// SPDX-License-Identifier: Apache-2.0
/* daxmap-load: load on any vhost-user-fs back-end, by FUSE requests or through its DAX window. */
#include <signal.h>
#include <stdio.h>

#include "load_options.h"
#include "load_run.h"

int main(int argc, char **argv)
{
	g_autoptr(GError) error = NULL;
	struct load_config c;
	int status = 2;

	signal(SIGPIPE, SIG_IGN);
	if (load_options_parse(&c, argc, argv, &error))
		status = load_run_main(&c);
	else
		fprintf(stderr, "daxmap-load: %s\n", error->message);
	load_options_clear(&c);
	return status;
}
