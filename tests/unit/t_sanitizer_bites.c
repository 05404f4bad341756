// SPDX-License-Identifier: Apache-2.0
/*
 * Built only with a sanitizer, and expected to fail: each run does one thing that the sanitizer
 * named on the command line must report. A pass means that the sanitizer is not really on.
 */
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int racy;

static void *race(void *arg)
{
	for (int i = 0; i < 100000; i++)
		racy++;
	return arg;
}

static int use_after_free(void)
{
	char *volatile p = malloc(16);

	if (!p)
		return 0;
	free(p);
	return p[3];
}

static int overflow(int argc)
{
	return INT_MAX - 1 + argc;
}

static int data_race(void)
{
	pthread_t t[2];

	for (int i = 0; i < 2; i++)
		if (pthread_create(&t[i], NULL, race, NULL))
			return 1;
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (strcmp(what, "address") == 0)
		printf("%d\n", use_after_free());
	else if (strcmp(what, "undefined") == 0)
		printf("%d\n", overflow(argc));
	else if (strcmp(what, "thread") == 0)
		printf("%d\n", data_race());
	return 0;
}
