// SPDX-License-Identifier: Apache-2.0
/* The host seat, one thread: each rule of table.h by itself. */
#include "dm_fixture.h"

#include <errno.h>
#include <string.h>

#include "dm_core.h"

static const struct dm_table_config forward = {.manager = DM_MANAGER_FORWARD};

static void test_arguments_are_checked(void)
{
	struct dm_fixture fx;
	struct dm_file_key f = {7, 1};
	uint64_t size = 64 * FX_GRANULE;

	fx_begin(&fx, FX_SHMEM, 0, NULL);
	g_assert_cmpint(dm_host_setup(fx.t, 1, 4096, f, 0, false), ==, -EINVAL);
	g_assert_cmpint(dm_host_setup(fx.t, 0, 0, f, 0, false), ==, -EINVAL);
	g_assert_cmpint(dm_host_setup(fx.t, 0, 100, f, 0, false), ==, -EINVAL);
	g_assert_cmpint(dm_host_setup(fx.t, 0, 4096, f, 12, false), ==, -EINVAL);
	g_assert_cmpint(dm_host_setup(fx.t, size, 4096, f, 0, false), ==, -ERANGE);
	g_assert_cmpint(dm_host_setup(fx.t, 4096, size, f, 0, false), ==, -ERANGE);
	g_assert_cmpint(dm_host_setup(fx.t, -(uint64_t)4096, 8192, f, 0, false), ==, -ERANGE);
	g_assert_cmpint(dm_host_setup(fx.t, 0, 8192, f, -(uint64_t)4096, false), ==, -ERANGE);
	g_assert_cmpint(dm_host_setup(fx.t, 0, 8192, f, INT64_MAX - 4095, false), ==, -ERANGE);
	g_assert_cmpint(dm_host_remove(fx.t, 1, 4096), ==, -EINVAL);
	g_assert_cmpint(dm_host_remove(fx.t, 0, 1), ==, -EINVAL);
	g_assert_cmpint(dm_host_remove(fx.t, 0, UINT64_MAX), ==, 0);
	g_assert_cmpint(dm_host_remove(fx.t, 4096, UINT64_MAX), ==, 0);
	g_assert_cmpint(dm_host_remove(fx.t, size, 4096), ==, 0);
	g_assert_cmpint(dm_host_remove(fx.t, 0, 4096), ==, 0);
	g_assert_cmpuint(fx_vmm(&fx).submits, ==, 0);
	fx_end(&fx);
}

static void test_remove_lingers_and_setup_revives(void)
{
	struct dm_fixture fx;

	fx_begin(&fx, FX_SHMEM, 0, NULL);
	g_assert_cmpint(fx_setup(&fx, 4, 4, 1, 0), ==, 0);
	g_assert_true(fx_shows(&fx, 7, 1, 3));
	g_assert_true(fx_owned(&fx, 4));
	g_assert_cmpint(fx_remove(&fx, 4, 4), ==, 0);
	g_assert_false(fx_owned(&fx, 4));
	g_assert_true(fx_shows(&fx, 4, 1, 0));
	g_assert_cmpint(fx_setup(&fx, 4, 4, 1, 0), ==, 0);
	g_assert_true(fx_owned(&fx, 7));
	g_assert_cmpuint(fx_vmm(&fx).maps, ==, 1);
	g_assert_cmpuint(fx_vmm(&fx).unmaps, ==, 0);
	g_assert_cmpuint(fx_stats(&fx).elided_revived, ==, 1);
	fx_assert_balance(&fx);
	fx_end(&fx);
}

static void test_same_bytes_are_answered_at_once(void)
{
	struct dm_fixture fx;
	struct dm_file_key f = {7, 1};

	fx_begin(&fx, FX_SHMEM, 0, NULL);
	g_assert_cmpint(fx_setup(&fx, 0, 8, 1, 0), ==, 0);
	g_assert_cmpint(fx_setup(&fx, 0, 8, 1, 0), ==, 0);
	g_assert_cmpint(fx_setup(&fx, 2, 2, 1, 2), ==, 0);
	g_assert_cmpint(dm_host_setup(fx.t, 0, 8 * FX_GRANULE, f, 0, true), ==, 0);
	g_assert_cmpuint(fx_stats(&fx).repeated, ==, 2);
	g_assert_cmpuint(fx_stats(&fx).upgraded, ==, 1);
	g_assert_cmpuint(fx_vmm(&fx).maps, ==, 1);
	fx_end(&fx);
}

static void test_read_only_file_refuses_writes(void)
{
	struct dm_fixture fx;
	struct dm_file_key f = {7, 1};

	fx_begin(&fx, FX_SHMEM, 0, NULL);
	fx.read_only = true;
	g_assert_cmpint(dm_host_setup(fx.t, 0, FX_GRANULE, f, 0, true), ==, -EACCES);
	g_assert_cmpint(fx.open_files, ==, 0);
	g_assert_cmpint(dm_host_setup(fx.t, 0, FX_GRANULE, f, 0, false), ==, 0);
	g_assert_cmpint(dm_host_setup(fx.t, 0, FX_GRANULE, f, 0, true), ==, -EACCES);
	g_assert_true(fx_owned(&fx, 0));
	g_assert_cmpuint(window_fake_pages(fx.fake)[0].flags, ==, 0);
	fx_end(&fx);
}

static void test_other_file_replaces(void)
{
	struct dm_fixture fx;

	for (int overlay = 0; overlay < 2; overlay++) {
		fx_begin(&fx, overlay ? FX_OVERLAY : FX_SHMEM, 0, NULL);
		g_assert_cmpint(fx_setup(&fx, 0, 4, 1, 0), ==, 0);
		g_assert_cmpint(fx_setup(&fx, 0, 4, 2, 8), ==, 0);
		g_assert_true(fx_shows(&fx, 3, 2, 11));
		g_assert_cmpint(fx_remove(&fx, 0, 4), ==, 0);
		g_assert_cmpint(fx_setup(&fx, 0, 4, 3, 0), ==, 0);
		g_assert_true(fx_shows(&fx, 0, 3, 0));
		g_assert_cmpuint(fx_vmm(&fx).unmaps, ==, overlay ? 0 : 2);
		g_assert_cmpuint(fx_vmm(&fx).submits, ==, 3);
		g_assert_cmpuint(fx_stats(&fx).elided_overlaid, ==, overlay ? 2 : 0);
		g_assert_cmpint(fx.open_files, ==, 1);
		fx_assert_balance(&fx);
		fx_end(&fx);
	}
}

/* An exact-unmap VMM cannot lose the half that the owner keeps. */
static void test_half_over_a_live_range(void)
{
	struct dm_fixture fx;

	fx_begin(&fx, FX_SHMEM, 0, NULL);
	g_assert_cmpint(fx_setup(&fx, 0, 4, 1, 0), ==, 0);
	g_assert_cmpint(fx_setup(&fx, 2, 4, 2, 0), ==, -EBUSY);
	g_assert_true(fx_owned(&fx, 0) && fx_owned(&fx, 3) && !fx_owned(&fx, 4));
	g_assert_cmpint(fx_remove(&fx, 0, 2), ==, 0);
	g_assert_cmpint(fx_setup(&fx, 2, 4, 2, 0), ==, 0);
	g_assert_true(fx_hole(&fx, 0) && fx_shows(&fx, 2, 2, 0));
	fx_assert_balance(&fx);
	fx_end(&fx);

	fx_begin(&fx, FX_OVERLAY, 0, NULL);
	g_assert_cmpint(fx_setup(&fx, 0, 6, 1, 0), ==, 0);
	g_assert_cmpint(fx_setup(&fx, 2, 2, 2, 0), ==, 0);
	g_assert_true(fx_shows(&fx, 1, 1, 1) && fx_shows(&fx, 2, 2, 0) && fx_shows(&fx, 4, 1, 4));
	g_assert_true(fx_owned(&fx, 1) && fx_owned(&fx, 2) && fx_owned(&fx, 5));
	fx_assert_balance(&fx);
	fx_end(&fx);
}

/* What the owner has is never unmapped to be mapped again: only the gaps are mapped. */
static void test_superset_maps_only_gaps(void)
{
	struct dm_fixture fx;

	fx_begin(&fx, FX_SHMEM, 0, NULL);
	g_assert_cmpint(fx_setup(&fx, 2, 2, 1, 2), ==, 0);
	g_assert_cmpint(fx_setup(&fx, 0, 8, 1, 0), ==, 0);
	g_assert_cmpuint(fx_vmm(&fx).maps, ==, 3);
	g_assert_cmpuint(fx_vmm(&fx).unmaps, ==, 0);
	g_assert_cmpuint(fx_vmm(&fx).submits, ==, 2);
	for (uint64_t g = 0; g < 8; g++)
		g_assert_true(fx_shows(&fx, g, 1, g) && fx_owned(&fx, g));
	fx_end(&fx);
}

static void test_partial_remove(void)
{
	struct dm_fixture fx;

	for (int split = 0; split < 2; split++) {
		fx_begin(&fx, split ? FX_OVERLAY : FX_SHMEM, 0, NULL);
		g_assert_cmpint(fx_setup(&fx, 0, 6, 1, 0), ==, 0);
		g_assert_cmpint(fx_remove(&fx, 2, 2), ==, 0);
		g_assert_true(fx_owned(&fx, 1) && !fx_owned(&fx, 2) && fx_owned(&fx, 4));
		g_assert_cmpuint(fx_stats(&fx).lingering, ==, split);
		g_assert_cmpint(fx_setup(&fx, 2, 1, 1, 2), ==, 0);
		g_assert_true(fx_owned(&fx, 2) && !fx_owned(&fx, 3));
		g_assert_cmpint(dm_host_remove(fx.t, 0, UINT64_MAX), ==, 0);
		g_assert_cmpuint(fx_stats(&fx).live, ==, 0);
		g_assert_cmpuint(fx_vmm(&fx).submits, ==, 1);
		fx_assert_balance(&fx);
		g_assert_cmpint(dm_host_flush(fx.t), ==, 0);
		g_assert_cmpuint(fx_vmm(&fx).live, ==, 0);
		g_assert_cmpint(fx.open_files, ==, 0);
		fx_assert_balance(&fx);
		fx_end(&fx);
	}
}

static void test_budget(void)
{
	struct dm_fixture fx;
	struct dm_table_config config = {.max_mappings = 3, .no_worker = true};

	for (uint32_t hard = 3; hard < 5; hard++) {
		fx_begin(&fx, FX_SHMEM, hard, &config);
		for (uint64_t g = 0; g < 3; g++)
			g_assert_cmpint(fx_setup(&fx, g, 1, 1, g), ==, 0);
		g_assert_cmpint(fx_setup(&fx, 8, 1, 1, 8), ==, -ENOMEM);
		g_assert_cmpuint(fx_stats(&fx).refused_budget, ==, 1);
		g_assert_cmpint(fx_remove(&fx, 1, 1), ==, 0);
		g_assert_cmpint(fx_setup(&fx, 8, 1, 1, 8), ==, 0);
		g_assert_true(fx_hole(&fx, 1) && fx_shows(&fx, 8, 1, 8));
		/* unmap and map in one batch where the VMM would survive both */
		g_assert_cmpuint(fx_vmm(&fx).submits, ==, hard == 3 ? 5 : 4);
		g_assert_cmpuint(fx_stats(&fx).reclaim_inline, ==, 1);
		g_assert_cmpuint(fx_vmm(&fx).peak, ==, 3);
		fx_assert_balance(&fx);
		fx_end(&fx);
	}
}

static void test_refused_map_changes_nothing(void)
{
	struct dm_fixture fx;

	fx_begin(&fx, FX_OVERLAY, 0, NULL);
	g_assert_cmpint(fx_setup(&fx, 0, 2, 1, 0), ==, 0);
	window_faulty_set_rates(fx.window, 65536, 0, 0);
	g_assert_cmpint(fx_setup(&fx, 4, 2, 2, 0), ==, -EIO);
	g_assert_cmpint(fx_setup(&fx, 0, 4, 1, 0), ==, -EIO);
	g_assert_true(fx_owned(&fx, 0) && fx_owned(&fx, 1) && !fx_owned(&fx, 2));
	g_assert_cmpint(fx.open_files, ==, 1);
	g_assert_cmpuint(fx_stats(&fx).mapped, ==, 1);
	fx_assert_balance(&fx);
	fx_end(&fx);
}

static void test_refused_unmap_lingers(void)
{
	struct dm_fixture fx;
	struct dm_file_key f = {7, 1};

	fx_begin(&fx, FX_SHMEM, 0, NULL);
	g_assert_cmpint(fx_setup(&fx, 0, 2, 1, 0), ==, 0);
	g_assert_cmpint(fx_remove(&fx, 0, 2), ==, 0);
	window_faulty_set_rates(fx.window, 0, 65536, 0);
	g_assert_cmpint(dm_host_flush_file(fx.t, f, false), ==, -EIO);
	g_assert_cmpuint(fx_stats(&fx).lingering, ==, 1);
	/* in the way and will not go: the VMM refuses the overlap */
	g_assert_cmpint(fx_setup(&fx, 0, 2, 2, 0), ==, -EEXIST);
	g_assert_true(fx_shows(&fx, 0, 1, 0));
	window_faulty_set_rates(fx.window, 0, 0, 0);
	g_assert_cmpint(dm_host_flush_file(fx.t, f, false), ==, 0);
	g_assert_true(fx_hole(&fx, 0));
	g_assert_cmpint(fx.open_files, ==, 0);
	fx_assert_balance(&fx);
	fx_end(&fx);
}

static void test_flush_file(void)
{
	struct dm_fixture fx;
	struct dm_file_key f = {7, 1};

	fx_begin(&fx, FX_SHMEM, 0, NULL);
	for (uint64_t g = 0; g < 20; g++)
		g_assert_cmpint(fx_setup(&fx, g, 1, 1 + g % 2, g), ==, 0);
	g_assert_cmpint(fx_remove(&fx, 0, 10), ==, 0);
	g_assert_cmpint(dm_host_flush_file(fx.t, f, false), ==, 0);
	g_assert_true(fx_hole(&fx, 0) && !fx_hole(&fx, 1) && fx_owned(&fx, 10));
	g_assert_cmpint(dm_host_flush_file(fx.t, f, true), ==, 0);
	g_assert_true(fx_hole(&fx, 10) && fx_owned(&fx, 11));
	g_assert_cmpint(fx.open_files, ==, 1);
	fx_assert_balance(&fx);
	fx_end(&fx);
}

static void test_broken_until_forgotten(void)
{
	struct dm_fixture fx;
	struct dm_pin pin;

	fx_begin(&fx, FX_SHMEM, 0, NULL);
	g_assert_cmpint(fx_setup(&fx, 0, 2, 1, 0), ==, 0);
	window_faulty_disconnect(fx.window);
	g_assert_cmpint(fx_setup(&fx, 4, 2, 1, 4), ==, -EPIPE);
	g_assert_true(dm_host_broken(fx.t));
	g_assert_cmpint(fx_setup(&fx, 0, 2, 1, 0), ==, -EPIPE);
	g_assert_cmpint(fx_remove(&fx, 0, 2), ==, -EPIPE);
	g_assert_cmpint(dm_host_flush(fx.t), ==, -EPIPE);
	g_assert_cmpint(dm_host_pin(fx.t, 0, 1, &pin), ==, -EFAULT);
	dm_host_forget(fx.t);
	g_assert_cmpint(fx.open_files, ==, 0);
	g_assert_cmpuint(fx_stats(&fx).mapped, ==, 0);
	window_faulty_reconnect(fx.window);
	window_fake_reset(fx.fake);
	g_assert_cmpint(fx_setup(&fx, 0, 2, 1, 0), ==, 0);
	fx_assert_balance(&fx);
	fx_end(&fx);
}

static void test_pin_describes_the_bytes(void)
{
	struct dm_fixture fx;
	struct dm_pin pin;

	fx_begin(&fx, FX_SHMEM, 0, NULL);
	g_assert_cmpint(fx_setup(&fx, 2, 4, 5, 10), ==, 0);
	g_assert_cmpint(dm_host_pin(fx.t, 3 * FX_GRANULE + 100, 1 << 20, &pin), ==, 0);
	g_assert_cmpuint(pin.file_offset, ==, 11 * FX_GRANULE + 100);
	g_assert_cmpuint(pin.len, ==, 3 * FX_GRANULE - 100);
	g_assert_cmpint(pin.fd, ==, 1005);
	g_assert_true(pin.writable);
	dm_host_unpin(fx.t, &pin);
	g_assert_cmpint(dm_host_pin(fx.t, 0, 1, &pin), ==, -EFAULT);
	g_assert_cmpint(dm_host_pin(fx.t, UINT64_MAX, 1, &pin), ==, -EFAULT);
	fx_end(&fx);
}

static bool has_parent(struct dm_fixture *fx)
{
	const struct dm_range *r = dm_index_lookup(dm_table_core(fx->t), 0);

	return r && r->parent;
}

/* What was cut while pinned does not hold on to its forebears for ever. */
static void test_cuts_forget_old_pins(void)
{
	struct dm_fixture fx;
	struct dm_pin pin;

	fx_begin(&fx, FX_OVERLAY, 0, NULL);
	g_assert_cmpint(fx_setup(&fx, 0, 32, 1, 0), ==, 0);
	g_assert_cmpint(dm_host_pin(fx.t, 0, 1, &pin), ==, 0);
	g_assert_cmpint(fx_remove(&fx, 31, 1), ==, 0);
	g_assert_true(has_parent(&fx));
	dm_host_unpin(fx.t, &pin);
	for (uint64_t g = 30; g > 20; g--)
		g_assert_cmpint(fx_remove(&fx, g, 1), ==, 0);
	g_assert_false(has_parent(&fx));
	g_assert_true(fx_owned(&fx, 20) && !fx_owned(&fx, 21));
	fx_assert_balance(&fx);
	fx_end(&fx);
}

static void test_forward_asks_for_everything(void)
{
	struct dm_fixture fx;

	fx_begin(&fx, FX_OVERLAY, 0, &forward);
	g_assert_cmpint(fx_setup(&fx, 0, 2, 1, 0), ==, 0);
	g_assert_cmpint(fx_remove(&fx, 0, 2), ==, 0);
	g_assert_true(fx_hole(&fx, 0));
	g_assert_cmpint(fx_setup(&fx, 0, 2, 1, 0), ==, 0);
	g_assert_cmpint(fx_setup(&fx, 4, 4, 2, 0), ==, 0);
	g_assert_cmpint(fx_remove(&fx, 5, 2), ==, 0);
	g_assert_true(fx_owned(&fx, 4) && fx_hole(&fx, 5) && fx_owned(&fx, 7));
	g_assert_cmpint(dm_host_remove(fx.t, 0, UINT64_MAX), ==, 0);
	g_assert_cmpuint(fx_vmm(&fx).live, ==, 0);
	g_assert_cmpuint(fx_vmm(&fx).submits, ==, fx_vmm(&fx).maps + fx_vmm(&fx).unmaps);
	g_assert_cmpint(fx.open_files, ==, 0);
	fx_assert_balance(&fx);
	fx_end(&fx);
}

static void take_file(void *ctx, const struct dm_file_info *f)
{
	struct dm_file_info *out = ctx;

	g_assert_cmpuint(f->file.hi, ==, 7);
	g_assert_cmpuint(f->file.lo, <, 4);
	g_assert_cmpuint(out[f->file.lo].ranges, ==, 0);
	out[f->file.lo] = *f;
}

static void test_files_are_counted(void)
{
	struct dm_file_info f[4] = {0};
	struct dm_fixture fx;
	struct dm_pin pin;

	fx_begin(&fx, FX_SHMEM, 0, NULL);
	g_assert_cmpint(fx_setup(&fx, 0, 2, 1, 0), ==, 0);
	g_assert_cmpint(fx_setup(&fx, 4, 4, 1, 8), ==, 0);
	g_assert_cmpint(fx_setup(&fx, 10, 1, 2, 0), ==, 0);
	g_assert_cmpint(fx_remove(&fx, 4, 4), ==, 0);
	g_assert_cmpint(fx_setup(&fx, 4, 4, 1, 8), ==, 0); /* revived */
	g_assert_cmpint(fx_remove(&fx, 4, 4), ==, 0);
	g_assert_cmpint(fx_setup(&fx, 12, 1, 3, 0), ==, 0);
	g_assert_cmpint(fx_remove(&fx, 12, 1), ==, 0);
	g_assert_cmpint(dm_host_flush_file(fx.t, (struct dm_file_key){7, 3}, false), ==, 0);
	g_assert_cmpint(dm_host_pin(fx.t, 0, 1, &pin), ==, 0);
	dm_table_foreach_file(fx.t, take_file, f);
	dm_host_unpin(fx.t, &pin);
	g_assert_cmpuint(f[1].ranges, ==, 2);
	g_assert_cmpuint(f[1].bytes, ==, 6 * FX_GRANULE);
	g_assert_cmpuint(f[1].live_bytes, ==, 2 * FX_GRANULE);
	g_assert_cmpuint(f[1].pins, ==, 1);
	g_assert_cmpuint(f[1].counts.setups, ==, 3);
	g_assert_cmpuint(f[1].counts.revived, ==, 1);
	g_assert_cmpuint(f[1].counts.removed, ==, 2);
	g_assert_cmpuint(f[1].counts.maps, ==, 2);
	g_assert_cmpuint(f[2].counts.setups, ==, 1);
	g_assert_cmpuint(f[2].ranges, ==, 1);
	g_assert_cmpuint(f[3].ranges, ==, 0);
	/* a file that was closed goes on counting */
	g_assert_cmpint(fx_setup(&fx, 12, 1, 3, 0), ==, 0);
	memset(f, 0, sizeof(f));
	dm_table_foreach_file(fx.t, take_file, f);
	g_assert_cmpuint(f[3].ranges, ==, 1);
	g_assert_cmpuint(f[3].counts.setups, ==, 2);
	g_assert_cmpuint(f[3].counts.removed, ==, 1);
	fx_end(&fx);
}

static bool drained_to(struct dm_fixture *fx, uint64_t mapped)
{
	for (int i = 0; i < 2000 && fx_stats(fx).mapped != mapped; i++)
		g_usleep(500);
	return fx_stats(fx).mapped == mapped;
}

/* The worker sleeps for an hour by the old rules; the new ones wake it. */
static void test_marks_change_in_use(void)
{
	const struct dm_table_config hour = {.linger_ms = 3600000, .high_watermark = 100};
	const struct dm_table_config low = {
		.linger_ms = 3600000, .high_watermark = 50, .low_watermark = 25};
	const struct dm_table_config soon = {.linger_ms = 1, .policy = DM_POLICY_CLOCK};
	struct dm_fixture fx;

	fx_begin(&fx, FX_OVERLAY, 16, &hour);
	for (uint64_t g = 0; g < 12; g++)
		g_assert_cmpint(fx_setup(&fx, g, 1, 1, 2 * g), ==, 0);
	g_assert_cmpint(fx_remove(&fx, 0, 12), ==, 0);
	g_assert_cmpuint(fx_stats(&fx).lingering, ==, 12);
	dm_table_tune(fx.t, &low);
	g_assert_true(drained_to(&fx, 4));
	dm_table_tune(fx.t, &soon);
	g_assert_true(drained_to(&fx, 0));
	fx_assert_balance(&fx);
	fx_end(&fx);
}

/* Of two that linger the older one was revived before: fifo takes it, the clock the other. */
static void test_clock_keeps_what_was_wanted_back(void)
{
	for (int clock = 0; clock < 2; clock++) {
		const struct dm_table_config config = {
			.no_worker = true,
			.policy = clock ? DM_POLICY_CLOCK : DM_POLICY_FIFO,
		};
		struct dm_fixture fx;

		fx_begin(&fx, FX_SHMEM, 2, &config);
		g_assert_cmpint(fx_setup(&fx, 0, 1, 1, 0), ==, 0);
		g_assert_cmpint(fx_setup(&fx, 1, 1, 1, 2), ==, 0);
		g_assert_cmpint(fx_remove(&fx, 0, 1), ==, 0);
		g_assert_cmpint(fx_setup(&fx, 0, 1, 1, 0), ==, 0);
		g_assert_cmpint(fx_remove(&fx, 0, 1), ==, 0);
		g_assert_cmpint(fx_remove(&fx, 1, 1), ==, 0);
		g_assert_cmpint(fx_setup(&fx, 5, 1, 1, 4), ==, 0);
		g_assert_cmpint(fx_shows(&fx, 0, 1, 0), ==, clock);
		g_assert_cmpint(fx_hole(&fx, 1), ==, clock);
		fx_assert_balance(&fx);
		fx_end(&fx);
	}
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/dm/arguments", test_arguments_are_checked);
	g_test_add_func("/dm/revive", test_remove_lingers_and_setup_revives);
	g_test_add_func("/dm/same-bytes", test_same_bytes_are_answered_at_once);
	g_test_add_func("/dm/read-only", test_read_only_file_refuses_writes);
	g_test_add_func("/dm/replace", test_other_file_replaces);
	g_test_add_func("/dm/half-over-live", test_half_over_a_live_range);
	g_test_add_func("/dm/superset", test_superset_maps_only_gaps);
	g_test_add_func("/dm/partial-remove", test_partial_remove);
	g_test_add_func("/dm/budget", test_budget);
	g_test_add_func("/dm/map-refused", test_refused_map_changes_nothing);
	g_test_add_func("/dm/unmap-refused", test_refused_unmap_lingers);
	g_test_add_func("/dm/flush-file", test_flush_file);
	g_test_add_func("/dm/broken", test_broken_until_forgotten);
	g_test_add_func("/dm/pin", test_pin_describes_the_bytes);
	g_test_add_func("/dm/cuts-forget-pins", test_cuts_forget_old_pins);
	g_test_add_func("/dm/files", test_files_are_counted);
	g_test_add_func("/dm/tune", test_marks_change_in_use);
	g_test_add_func("/dm/clock", test_clock_keeps_what_was_wanted_back);
	g_test_add_func("/dm/forward", test_forward_asks_for_everything);
	return g_test_run();
}
