#include "tuning.h"

#include <string.h>

#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define GIB (1ull << 30)

/* Figures behind each entry: benchmarks/NOTES.md, "Tuning". */
static const struct fab_tuning table[] = {
	/* Four 4 KiB pages an operation move 2.9 times as much as one. */
	{.provider = "tcp",
	 .segments = 4,
	 .segment_bytes = 64 * KIB,
	 .operation_bytes = 1 * MIB,
	 .inflight_bytes = 16 * MIB,
	 .shared_bytes = 2 * MIB,
	 .writes_last = FAB_WRITES_LAST_CONNECTION,
	 .lists_sockets = 1},
	/* What 1.17 calls the tcp of 2.x. */
	{.provider = "net",
	 .segments = 4,
	 .segment_bytes = 64 * KIB,
	 .operation_bytes = 1 * MIB,
	 .inflight_bytes = 16 * MIB,
	 .shared_bytes = 2 * MIB,
	 .writes_last = FAB_WRITES_LAST_CONNECTION},
	{.provider = "tcp;ofi_rxm",
	 .segments = 4,
	 .segment_bytes = 64 * KIB,
	 .operation_bytes = 1 * MIB,
	 .inflight_bytes = 16 * MIB,
	 .shared_bytes = 2 * MIB,
	 .writes_last = FAB_WRITES_LAST_CONNECTION},
	/* What the provider itself moves is what cma.h cannot yet, or not at
	 * all: few at a time, since what is out to a process that is killed
	 * keeps its place in the lane. */
	{.provider = "shm",
	 .segments = 1,
	 .operation_bytes = 1 * MIB,
	 .inflight_bytes = 16 * MIB,
	 .shared_bytes = 2 * MIB,
	 .peer_inflight = 64,
	 .writes_last = FAB_WRITES_LAST_PROCESS,
	 .shares_memory = 1},
	/* EFA: rma_iov_limit is 1, and 1 GiB is the longest write. */
	{.provider = "",
	 .segments = 1,
	 .operation_bytes = 1 * GIB,
	 .inflight_bytes = 64 * MIB,
	 .shared_bytes = 4 * MIB},
};

const struct fab_tuning *fab_tuning_find(const char *provider)
{
	const struct fab_tuning *row = table;

	while (row->provider[0] && strcmp(row->provider, provider))
		row++;
	return row;
}
