/* A simulated NIC: its name and place, its link's time, its faults and what it
 * counted. It lives from one configuration to the next, so longer than every
 * domain on it. */
#ifndef SIM_NIC_H
#define SIM_NIC_H

#include "common.h"
#include "config.h"

enum sim_kind {
	SIM_WRITE = 1 << 0,
	SIM_READ = 1 << 1,
	SIM_SEND = 1 << 2,
};

enum sim_count {
	SIM_WRITES_POSTED,
	SIM_READS_POSTED,
	SIM_SENDS_POSTED,
	SIM_COMPLETIONS, /* read from a CQ by who posted */
	SIM_ERRORS,      /* those of them that failed */
	SIM_BYTES,       /* of RMA operations that landed */
	SIM_IMMEDIATES,  /* read from a CQ by the target */
	SIM_MESSAGES,    /* read from a CQ by who received */
	SIM_AGAIN,       /* posts refused with -FI_EAGAIN */
	SIM_NOT_READY,   /* attempts that met no receive, or a full CQ */
	SIM_COUNTS
};

struct sim_counters {
	_Atomic uint64_t value[SIM_COUNTS]; /* writer: see its owner */
};

/* One writer at a time. */
static inline void sim_count(struct sim_counters *counters, enum sim_count what,
			     uint64_t amount)
{
	_Atomic uint64_t *value = &counters->value[what];

	atomic_store_explicit(
		value,
		atomic_load_explicit(value, memory_order_relaxed) + amount,
		memory_order_relaxed);
}

/* What an operation ends with instead of landing. */
struct sim_verdict {
	int err; /* positive fi_errno; 0: it lands */
	int prov_errno;
};

#define SIM_FAILURE_LIMIT 64

struct sim_failure {
	uint32_t kinds;
	uint64_t remaining; /* operations of these kinds until it strikes */
	struct sim_verdict verdict;
};

/* Why posting and landing must look closer; see struct sim_nic. */
enum sim_attention {
	SIM_ATTENTION_POST = 1 << 0, /* failures, again, storm */
	SIM_ATTENTION_DOWN = 1 << 1, /* from down_at_ns on */
	SIM_ATTENTION_SILENT = 1 << 2,
};

enum sim_direction { SIM_TX, SIM_RX };

struct sim_nic {
	uint32_t index;
	char name[24];   /* "sim0" */
	char domain[32]; /* "sim0-rdm" */
	struct fi_pci_attr pci;
	uint64_t bits_per_s;
	/* N1 a bit is set while a fault of its sort is scripted; while none is,
	 * posting and landing cost one load of it. Written under `lock`, read
	 * by any thread; released and acquired with down_at_ns. */
	_Atomic uint32_t attention;
	_Atomic uint64_t down_at_ns; /* written under `lock` */
	struct sim_lock lock;        /* guards all below */
	uint64_t free_ns[2];         /* when the link can take more */
	struct sim_failure failures[SIM_FAILURE_LIMIT];
	uint32_t failure_count;
	uint64_t again;             /* posts still to be refused */
	uint64_t storm;             /* posts refused, of 2^64 */
	uint64_t random;            /* state of sim_random, for storms */
	struct sim_counters closed; /* of domains that are closed */
};

void sim_nic_construct(struct sim_nic *nic, const struct sim_config *config,
		       uint32_t index);

/* How long `bytes` take to pass the link. */
uint64_t sim_nic_wire_ns(const struct sim_nic *nic, uint64_t bytes);
/* When the last of `bytes` has passed the link, if it may begin `earliest`; the
 * link is taken until then. [any] */
uint64_t sim_nic_reserve(struct sim_nic *nic, enum sim_direction direction,
			 uint64_t earliest_ns, uint64_t bytes);

/* Only while SIM_ATTENTION_POST is set: 0, or -FI_EAGAIN for this post. What is
 * not refused counts as an operation, and may get a verdict. [any] */
int sim_nic_post(struct sim_nic *nic, enum sim_kind kind,
		 struct sim_verdict *verdict);

/* 1 if it is down at this moment. [any] */
int sim_nic_is_down(struct sim_nic *nic);

/* The scripts. 0, or -FI_ENOSPC when too many failures wait. [any] */
int sim_nic_fail(struct sim_nic *nic, uint32_t kinds, uint64_t operation,
		 struct sim_verdict verdict);
void sim_nic_again(struct sim_nic *nic, uint64_t count);
void sim_nic_storm(struct sim_nic *nic, uint64_t probability, uint64_t seed);
void sim_nic_down(struct sim_nic *nic, uint64_t at_ns);
void sim_nic_up(struct sim_nic *nic);
void sim_nic_silence(struct sim_nic *nic, int silent);
/* No script any more, and up. */
void sim_nic_heal(struct sim_nic *nic);

#endif
