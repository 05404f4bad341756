// SPDX-License-Identifier: Apache-2.0
#include "trace.h"

G_DEFINE_QUARK(daxmap - trace - error, trace_error)

static const char *const kind_names[] = {
	[TRACE_SETUP] = "setup",     [TRACE_REMOVE] = "remove", [TRACE_REVIVE] = "revive",
	[TRACE_OVERLAY] = "overlay", [TRACE_CANCEL] = "cancel", [TRACE_MAP] = "map",
	[TRACE_UNMAP] = "unmap",     [TRACE_PIN] = "pin",	[TRACE_ACCESS] = "access",
	[TRACE_PRESENT] = "present", [TRACE_NAME] = "name",	[TRACE_BEGIN] = "begin",
	[TRACE_END] = "end",	     [TRACE_POLICY] = "policy",
};
G_STATIC_ASSERT(G_N_ELEMENTS(kind_names) == TRACE_KINDS);

const char *trace_kind_name(unsigned int kind)
{
	return kind < TRACE_KINDS ? kind_names[kind] : NULL;
}

const char *trace_ending_text(enum trace_ending ending)
{
	switch (ending) {
	case TRACE_OPEN:
		return "not closed";
	case TRACE_STOPPED:
		return "stopped";
	case TRACE_FULL:
		return "size cap reached";
	case TRACE_ERROR:
		return "a write failed";
	}
	return "?";
}
