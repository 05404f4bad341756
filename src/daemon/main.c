// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>

#include "daemon_log.h"
#include "daemon_options.h"
#include "daemon_run.h"

static int show_help(void)
{
	g_autofree char *help = daemon_options_help();

	printf("%s", help);
	return DAEMON_EXIT_OK;
}

int main(int argc, char **argv)
{
	g_autoptr(GError) error = NULL;
	struct daemon_config config;
	int status;

	daemon_config_init(&config);
	if (!daemon_options_parse(&config, argc, argv, &error)) {
		fprintf(stderr, "daxmapd: %s\n", error->message);
		status = DAEMON_EXIT_USAGE;
	} else if (config.help) {
		status = show_help();
	} else if (config.version) {
		printf("daxmapd %s\n", DAXMAPD_VERSION);
		status = DAEMON_EXIT_OK;
	} else if (config.print_capabilities) {
		printf("{\n  \"type\": \"fs\",\n  \"features\": [\"separate-options\"]\n}\n");
		status = DAEMON_EXIT_OK;
	} else {
		daemon_log_start((enum daemon_log_level)config.log_level, config.syslog);
		status = daemon_run(&config);
	}
	daemon_config_clear(&config);
	return status;
}
