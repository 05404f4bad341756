// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>

#include <json-glib/json-glib.h>

#include "load_options.h"
#include "load_report.h"
#include "util_json.h"

static void put_cpu(JsonBuilder *b, const char *name, int64_t ns, uint64_t ops)
{
	json_builder_set_member_name(b, name);
	if (ns < 0 || !ops)
		json_builder_add_null_value(b);
	else
		json_builder_add_double_value(b, (double)ns / 1000 / (double)ops);
}

static double us(const struct load_hist *h, double q)
{
	return (double)load_hist_quantile(h, q) / 1000;
}

static void put_parameters(JsonBuilder *b, const struct load_config *c)
{
	util_json_begin(b, "parameters");
	util_json_string(b, "rw", load_rw_name(c->rw));
	util_json_string(b, "engine", load_engine_name(c->engine));
	util_json_u64(b, "bs", c->bs);
	util_json_u64(b, "size", c->size);
	util_json_u64(b, "files", c->files);
	util_json_u64(b, "iodepth", c->iodepth);
	util_json_u64(b, "jobs", c->jobs);
	util_json_u64(b, "window", c->window);
	util_json_string(b, "window_mode",
			 c->window_mode == GUEST_WINDOW_STRICT ? "strict" : "overlay");
	util_json_string(b, "reclaim", c->reclaim == LOAD_RECLAIM_FINE ? "fine" : "vanilla");
	util_json_double(b, "zipf", c->zipf);
	util_json_double(b, "ramp", c->ramp);
	util_json_u64(b, "seed", c->seed);
	json_builder_end_object(b);
}

static void put_dax(JsonBuilder *b, const struct load_result *r)
{
	util_json_begin(b, "dax");
	util_json_u64(b, "hits", r->dax.hits);
	util_json_u64(b, "maps", r->dax.maps);
	util_json_u64(b, "removes", r->dax.removes);
	util_json_u64(b, "elided", r->dax.elided);
	util_json_u64(b, "reclaimed", r->dax.reclaimed);
	util_json_u64(b, "by_read", r->by_read);
	json_builder_end_object(b);
}

void load_report_json(const struct load_run *run, const struct load_result *r)
{
	g_autoptr(JsonBuilder) b = json_builder_new();
	g_autoptr(JsonNode) root = NULL;
	g_autofree char *text = NULL;

	json_builder_begin_object(b);
	put_parameters(b, run->config);
	util_json_double(b, "seconds", r->seconds);
	util_json_u64(b, "ops", r->ops);
	util_json_double(b, "iops", r->seconds > 0 ? (double)r->ops / r->seconds : 0);
	util_json_double(b, "bytes_per_s", r->seconds > 0 ? (double)r->bytes / r->seconds : 0);
	util_json_begin(b, "lat_us");
	util_json_double(b, "p50", us(&r->hist, 0.5));
	util_json_double(b, "p99", us(&r->hist, 0.99));
	util_json_double(b, "max", us(&r->hist, 1));
	json_builder_end_object(b);
	util_json_u64(b, "verify_errors", r->verify_errors);
	util_json_u64(b, "violations", r->violations);
	util_json_string(b, "violation", r->violation);
	util_json_begin(b, "cpu_us_per_op");
	put_cpu(b, "daemon", r->daemon_cpu, r->ops);
	put_cpu(b, "load", r->load_cpu, r->ops);
	json_builder_end_object(b);
	put_dax(b, r);
	util_json_string(b, "error",
			 run->why	    ? run->why
			 : run->first_wrong ? run->first_wrong
					    : r->fault);
	json_builder_end_object(b);
	root = json_builder_get_root(b);
	text = json_to_string(root, FALSE);
	puts(text);
}

void load_report_text(const struct load_run *run, const struct load_result *r)
{
	double s = r->seconds > 0 ? r->seconds : 1;

	printf("%s, engine %s, bs %" G_GUINT64_FORMAT ", iodepth %u, jobs %u: %" G_GUINT64_FORMAT
	       " operations in %.2f s\n",
	       load_rw_name(run->config->rw), load_engine_name(run->config->engine),
	       run->config->bs, run->config->iodepth, run->config->jobs, r->ops, r->seconds);
	printf("  %.0f operations/s, %.1f MiB/s\n", (double)r->ops / s,
	       (double)r->bytes / s / 1048576);
	printf("  latency: p50 %.1f us, p99 %.1f us, max %.1f us\n", us(&r->hist, 0.5),
	       us(&r->hist, 0.99), us(&r->hist, 1));
	if (r->daemon_cpu >= 0)
		printf("  CPU time per operation: back-end %.2f us, generator %.2f us\n",
		       (double)r->daemon_cpu / 1000 / (double)MAX(r->ops, 1),
		       (double)r->load_cpu / 1000 / (double)MAX(r->ops, 1));
	if (run->dax)
		printf("  window: %" G_GUINT64_FORMAT " hits, %" G_GUINT64_FORMAT
		       " maps, %" G_GUINT64_FORMAT " removes (%" G_GUINT64_FORMAT
		       " elided), %" G_GUINT64_FORMAT " reclaimed, %" G_GUINT64_FORMAT
		       " by request\n",
		       r->dax.hits, r->dax.maps, r->dax.removes, r->dax.elided, r->dax.reclaimed,
		       r->by_read);
	if (run->config->verify)
		printf("  %" G_GUINT64_FORMAT " wrong pages\n", r->verify_errors);
}
