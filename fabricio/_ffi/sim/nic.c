#include "nic.h"

#include "wire.h"

#include <rdma/fi_errno.h>
#include <stdio.h>

void sim_nic_construct(struct sim_nic *nic, const struct sim_config *config,
		       uint32_t index)
{
	memset(nic, 0, sizeof(*nic));
	nic->index = index;
	snprintf(nic->name, sizeof(nic->name), "sim%u", index);
	snprintf(nic->domain, sizeof(nic->domain), "sim%u-rdm", index);
	nic->pci = config->pci[index];
	nic->bits_per_s = config->bits_per_s;
}

uint64_t sim_nic_wire_ns(const struct sim_nic *nic, uint64_t bytes)
{
	/* At most 2^30 bytes, so that the product fits. */
	return bytes * 8 * 1000000000ull / nic->bits_per_s;
}

uint64_t sim_nic_reserve(struct sim_nic *nic, enum sim_direction direction,
			 uint64_t earliest_ns, uint64_t bytes)
{
	uint64_t wire_ns = sim_nic_wire_ns(nic, bytes);
	uint64_t *free_ns = &nic->free_ns[direction];
	uint64_t end;

	sim_lock_take(&nic->lock);
	end = (*free_ns > earliest_ns ? *free_ns : earliest_ns) + wire_ns;
	*free_ns = end;
	sim_lock_give(&nic->lock);
	return end;
}

/* With the lock held, after a change. */
static void nic_attend(struct sim_nic *nic, uint32_t bit, int on)
{
	uint32_t bits =
		atomic_load_explicit(&nic->attention, memory_order_relaxed);

	bits = on ? bits | bit : bits & ~bit;
	atomic_store_explicit(&nic->attention, bits, memory_order_release);
}

static void nic_attend_post(struct sim_nic *nic)
{
	nic_attend(nic, SIM_ATTENTION_POST,
		   nic->failure_count || nic->again || nic->storm);
}

/* With the lock held: all failures count the operation, the first due strikes.
 */
static void nic_judge(struct sim_nic *nic, enum sim_kind kind,
		      struct sim_verdict *verdict)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < nic->failure_count; i++) {
		struct sim_failure *failure = &nic->failures[i];

		if (failure->kinds & kind) {
			if (failure->remaining == 0) {
				if (!verdict->err)
					*verdict = failure->verdict;
				continue;
			}
			failure->remaining--;
		}
		nic->failures[kept++] = *failure;
	}
	nic->failure_count = kept;
}

int sim_nic_post(struct sim_nic *nic, enum sim_kind kind,
		 struct sim_verdict *verdict)
{
	int ret = 0;

	sim_lock_take(&nic->lock);
	if (nic->again) {
		nic->again--;
		ret = -FI_EAGAIN;
	} else if (nic->storm && sim_random(&nic->random) < nic->storm) {
		ret = -FI_EAGAIN;
	} else {
		nic_judge(nic, kind, verdict);
	}
	nic_attend_post(nic);
	sim_lock_give(&nic->lock);
	return ret;
}

int sim_nic_is_down(struct sim_nic *nic)
{
	uint32_t bits =
		atomic_load_explicit(&nic->attention, memory_order_acquire);

	return (bits & SIM_ATTENTION_DOWN) &&
	       sim_now() >= atomic_load_explicit(&nic->down_at_ns,
						 memory_order_relaxed);
}

int sim_nic_fail(struct sim_nic *nic, uint32_t kinds, uint64_t operation,
		 struct sim_verdict verdict)
{
	int ret = -FI_ENOSPC;

	sim_lock_take(&nic->lock);
	if (nic->failure_count < SIM_FAILURE_LIMIT) {
		nic->failures[nic->failure_count++] = (struct sim_failure) {
			.kinds = kinds,
			.remaining = operation,
			.verdict = verdict,
		};
		nic_attend_post(nic);
		ret = 0;
	}
	sim_lock_give(&nic->lock);
	return ret;
}

void sim_nic_again(struct sim_nic *nic, uint64_t count)
{
	sim_lock_take(&nic->lock);
	nic->again = count;
	nic_attend_post(nic);
	sim_lock_give(&nic->lock);
}

void sim_nic_storm(struct sim_nic *nic, uint64_t probability, uint64_t seed)
{
	sim_lock_take(&nic->lock);
	nic->storm = probability;
	nic->random = seed;
	nic_attend_post(nic);
	sim_lock_give(&nic->lock);
}

void sim_nic_down(struct sim_nic *nic, uint64_t at_ns)
{
	sim_lock_take(&nic->lock);
	atomic_store_explicit(&nic->down_at_ns, at_ns, memory_order_relaxed);
	nic_attend(nic, SIM_ATTENTION_DOWN, 1);
	sim_lock_give(&nic->lock);
}

void sim_nic_up(struct sim_nic *nic)
{
	sim_lock_take(&nic->lock);
	nic_attend(nic, SIM_ATTENTION_DOWN, 0);
	sim_lock_give(&nic->lock);
}

void sim_nic_silence(struct sim_nic *nic, int silent)
{
	sim_lock_take(&nic->lock);
	nic_attend(nic, SIM_ATTENTION_SILENT, silent);
	sim_lock_give(&nic->lock);
}

void sim_nic_heal(struct sim_nic *nic)
{
	sim_lock_take(&nic->lock);
	nic->failure_count = 0;
	nic->again = 0;
	nic->storm = 0;
	atomic_store_explicit(&nic->attention, 0, memory_order_release);
	sim_lock_give(&nic->lock);
}
