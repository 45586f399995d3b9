/* Two processes joined by fork(), with one libfabric endpoint and one
 * registered pool each: what the plain C baselines have in common. Nothing of
 * fabricio is used here. Every function returns 0 or a negative fi_errno and
 * has printed the cause when it fails. */
#ifndef FABRIC_PAIR_H
#define FABRIC_PAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

/* Offsets, beyond the pool, of the control area: small messages that must not
 * overwrite a page. */
enum {
	PAIR_CONTROL_SEND = 0,
	PAIR_CONTROL_RECV = 2048,
	PAIR_CONTROL_BYTES = 4096,
};

struct pair_options {
	const char *provider; /* exact name, e.g. "tcp" */
	const char *source;   /* numeric source address; NULL: any */
	size_t pool_bytes;    /* registered memory of each process */
	size_t page_bytes;
	size_t page_count;
	size_t message_bytes;
	size_t iterations;
};

/* All handles are owned by the pair, of this process alone. */
struct pair {
	bool is_target; /* the forked child */
	int socket;     /* to the other process: set-up and results only */
	pid_t target;   /* initiator: the child to wait for */
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	struct fid_mr *mr;
	uint8_t *pool; /* options.pool_bytes, then the control area */
	size_t pool_bytes;
	void *desc; /* local descriptor of the pool */
	fi_addr_t peer;
	uint64_t remote_base; /* address of the peer's pool in its terms */
	uint64_t remote_key;
	bool send_pending;
	bool recv_pending;
	struct fi_context2 send_context;
	struct fi_context2 recv_context;
};

/* Read --provider, --source, --pool-bytes and so on into `options`, which
 * holds the defaults. The strings are borrowed from argv. */
int pair_options_parse(int argc, char **argv, struct pair_options *options);

/* fork(), then open, exchange addresses and keys, and connect by one message
 * each way. Returns in both processes; pair->is_target tells them apart. */
int pair_open(struct pair *pair, const struct pair_options *options);

/* Close what is open; the initiator also waits for the target, whose failure
 * it returns. May be called after a failed pair_open. */
int pair_close(struct pair *pair);

/* Start one message from, or one receive into, the pool or the control area.
 * Each kind at most one at a time. */
int pair_send(struct pair *pair, size_t offset_bytes, size_t bytes);
int pair_recv(struct pair *pair, size_t offset_bytes, size_t bytes);

/* Read up to `count` completions without waiting. Returns how many; those of
 * pair_send and pair_recv clear their pending flag. */
ssize_t pair_poll(struct pair *pair, struct fi_cq_entry *entries, size_t count);

/* Spin until neither pair_send nor pair_recv is pending. */
int pair_wait(struct pair *pair);

/* Swap `bytes` bytes with the other process while driving progress, so that
 * both sides' last operations end. Also a barrier. */
int pair_swap(struct pair *pair, const void *mine, void *theirs, size_t bytes);

double pair_now_s(void);

/* CPU seconds of this process so far, user and system. */
double pair_cpu_s(void);

/* Print why `call` failed and return `ret`. */
int pair_error(const char *call, int ret);

#endif
