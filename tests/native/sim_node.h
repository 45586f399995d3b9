/* One endpoint on a simulated NIC with all that belongs to it, opened through
 * libfabric's own API; and the plugin's control functions. */
#ifndef FAB_TEST_SIM_NODE_H
#define FAB_TEST_SIM_NODE_H

#include "check.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <string.h>

#define API_VERSION FI_VERSION(1, 17)
#define MEMORY      (1u << 16)

/* As in sim/control.h; found with dlsym by sim_load. */
struct sim_control {
	int (*configure)(const char *, char *, size_t);
	uint32_t (*nic_count)(void);
	int (*fail)(uint32_t, const char *, uint64_t, int, int);
	int (*again)(uint32_t, uint64_t);
	int (*storm)(uint32_t, double, uint64_t);
	int (*down)(uint32_t, uint64_t);
	int (*up)(uint32_t);
	int (*silence)(uint32_t, int);
	int (*silence_endpoint)(const void *, size_t, int);
	int (*overrun)(uint32_t);
	void (*heal)(void);
	void (*advance)(uint64_t);
	const char *(*counter_name)(uint32_t);
	int (*counter)(uint32_t, uint32_t, uint64_t *);
};

extern struct sim_control sim;

struct node {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	struct fid_mr *mr; /* of memory; may be closed and NULL */
	void *desc;
	uint64_t key;
	unsigned char *memory; /* owned, MEMORY bytes */
	unsigned char address[64];
	size_t address_bytes;
};

/* Load the plugin. Once, before all others. */
void sim_load(void);
/* Configure anew; nothing may be open. */
void sim_settings(const char *text);
uint64_t sim_counter(uint32_t nic, const char *name);

/* What a Fabric asks for. Owned by the caller. */
struct fi_info *sim_hints(void);
/* What it is told of NIC `number`; the caller owns it. */
struct fi_info *sim_info(uint32_t number);

/* `cq_size` 0: 1024. */
void node_open(struct node *node, uint32_t nic, size_t cq_size);
void node_close(struct node *node);
void node_register(struct node *node, uint64_t access);
fi_addr_t node_insert(struct node *node, const struct node *other);

/* Post RMA of `bytes` at the same offset of both memories. */
ssize_t node_write(struct node *node, fi_addr_t to, const struct node *target,
		   size_t offset, size_t bytes, uint64_t data, void *context);
ssize_t node_read(struct node *node, fi_addr_t from, const struct node *target,
		  size_t offset, size_t bytes, void *context);

/* The next completion; fails the test on an error. Polls `other` too, if it is
 * not NULL: nothing may come there. */
struct fi_cq_data_entry node_next(struct node *node, struct node *other);
/* The next completion is this error, of this context. */
void node_expect_error(struct node *node, void *context, int err,
		       int prov_errno);
/* Nothing has come, and nothing is due. */
void node_expect_nothing(struct node *node);

#endif
