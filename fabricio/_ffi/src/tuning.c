#include "tuning.h"

#include <string.h>

#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define GIB (1ull << 30)

/* Figures behind each entry: benchmarks/NOTES.md, "Tuning". */
static const struct fab_tuning table[] = {
	/* Four 4 KiB pages an operation move 2.7 times as much as one. */
	{"tcp", 4, 64 * KIB, 1 * MIB, 16 * MIB, 0, 0},
	{"net", 4, 64 * KIB, 1 * MIB, 16 * MIB, 0, 0},
	{"tcp;ofi_rxm", 4, 64 * KIB, 1 * MIB, 16 * MIB, 0, 0},
	/* Several pages an operation leave the provider's one-copy path. */
	{"shm", 1, 0, 1 * MIB, 16 * MIB, 0, 1},
	/* EFA: rma_iov_limit is 1, and 1 GiB is the longest write. */
	{"", 1, 0, 1 * GIB, 64 * MIB, 0, 0},
};

const struct fab_tuning *fab_tuning_find(const char *provider)
{
	const struct fab_tuning *row = table;

	while (row->provider[0] && strcmp(row->provider, provider))
		row++;
	return row;
}
