#define _GNU_SOURCE
#include "fabric_pair.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#if FI_MAJOR_VERSION < 2
#define DOMAIN_PROGRESS data_progress
#else
#define DOMAIN_PROGRESS progress
#endif

enum {
	NAME_BYTES = 512, /* room for any fabric address */
	HELLO_BYTES = 8,
	POLL_COUNT = 16,
	RECEIVE_ROOM = 64, /* CQ entries beyond the transmit queue's */
};

/* What each process tells the other before the first message. */
struct introduction {
	uint8_t name[NAME_BYTES];
	uint64_t base;
	uint64_t key;
};

int pair_error(const char *call, int ret)
{
	fprintf(stderr, "%s: %s (%d)\n", call, fi_strerror(-ret), ret);
	return ret;
}

double pair_now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double) now.tv_sec + (double) now.tv_nsec * 1e-9;
}

static double seconds(struct timeval time)
{
	return (double) time.tv_sec + (double) time.tv_usec * 1e-6;
}

double pair_cpu_s(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

int pair_options_parse(int argc, char **argv, struct pair_options *options)
{
	static const struct option names[] = {
		{"provider", required_argument, NULL, 'p'},
		{"source", required_argument, NULL, 's'},
		{"pool-bytes", required_argument, NULL, 'b'},
		{"page-bytes", required_argument, NULL, 'g'},
		{"page-count", required_argument, NULL, 'c'},
		{"message-bytes", required_argument, NULL, 'm'},
		{"iterations", required_argument, NULL, 'i'},
		{NULL, 0, NULL, 0},
	};
	size_t *size;
	char *end;
	int name;

	while ((name = getopt_long(argc, argv, "", names, NULL)) != -1) {
		switch (name) {
		case 'p':
			options->provider = optarg;
			continue;
		case 's':
			options->source = optarg;
			continue;
		case 'b':
			size = &options->pool_bytes;
			break;
		case 'g':
			size = &options->page_bytes;
			break;
		case 'c':
			size = &options->page_count;
			break;
		case 'm':
			size = &options->message_bytes;
			break;
		case 'i':
			size = &options->iterations;
			break;
		default:
			return -FI_EINVAL; /* getopt_long said why */
		}
		*size = strtoull(optarg, &end, 10);
		if (*end || *size == 0) {
			fprintf(stderr, "not a positive number: %s\n", optarg);
			return -FI_EINVAL;
		}
	}
	return 0;
}

static int discover(struct pair *pair, const struct pair_options *options)
{
	struct fi_info *hints = fi_allocinfo();
	int ret;

	if (!hints)
		return pair_error("fi_allocinfo", -FI_ENOMEM);
	hints->caps = FI_MSG | FI_RMA;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR |
				      FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->DOMAIN_PROGRESS = FI_PROGRESS_MANUAL;
	hints->fabric_attr->prov_name = strdup(options->provider);
	ret = fi_getinfo(FI_VERSION(1, 17), options->source, NULL,
			 options->source ? FI_SOURCE : 0, hints, &pair->info);
	fi_freeinfo(hints);
	return ret ? pair_error("fi_getinfo", ret) : 0;
}

static int open_objects(struct pair *pair)
{
	struct fi_cq_attr cq_attr = {
		.size = pair->info->tx_attr->size + RECEIVE_ROOM,
		.format = FI_CQ_FORMAT_CONTEXT,
		.wait_obj = FI_WAIT_NONE,
	};
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
	int ret;

	ret = fi_fabric(pair->info->fabric_attr, &pair->fabric, NULL);
	if (ret)
		return pair_error("fi_fabric", ret);
	ret = fi_domain(pair->fabric, pair->info, &pair->domain, NULL);
	if (ret)
		return pair_error("fi_domain", ret);
	ret = fi_cq_open(pair->domain, &cq_attr, &pair->cq, NULL);
	if (ret)
		return pair_error("fi_cq_open", ret);
	ret = fi_av_open(pair->domain, &av_attr, &pair->av, NULL);
	if (ret)
		return pair_error("fi_av_open", ret);
	ret = fi_endpoint(pair->domain, pair->info, &pair->ep, NULL);
	if (ret)
		return pair_error("fi_endpoint", ret);
	ret = fi_ep_bind(pair->ep, &pair->cq->fid, FI_TRANSMIT | FI_RECV);
	if (ret)
		return pair_error("fi_ep_bind", ret);
	ret = fi_ep_bind(pair->ep, &pair->av->fid, 0);
	if (ret)
		return pair_error("fi_ep_bind", ret);
	ret = fi_enable(pair->ep);
	return ret ? pair_error("fi_enable", ret) : 0;
}

static int open_pool(struct pair *pair, size_t pool_bytes)
{
	const uint64_t access = FI_SEND | FI_RECV | FI_WRITE | FI_READ |
				FI_REMOTE_WRITE | FI_REMOTE_READ;
	const size_t bytes = pool_bytes + PAIR_CONTROL_BYTES;
	void *pool = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int ret;

	if (pool == MAP_FAILED)
		return pair_error("mmap", -errno);
	pair->pool = pool;
	pair->pool_bytes = pool_bytes;
	memset(pool, 0, bytes); /* every page present before the clock */
	ret = fi_mr_reg(pair->domain, pool, bytes, access, 0,
			pair->is_target ? 2 : 1, 0, &pair->mr, NULL);
	if (ret)
		return pair_error("fi_mr_reg", ret);
	pair->desc = fi_mr_desc(pair->mr);
	return 0;
}

static int introduce(struct pair *pair)
{
	const bool virtual = pair->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR;
	struct introduction mine = {
		.base = virtual ? (uintptr_t) pair->pool : 0,
		.key = fi_mr_key(pair->mr),
	};
	struct introduction theirs;
	size_t name_bytes = sizeof(mine.name);
	int ret;

	ret = fi_getname(&pair->ep->fid, mine.name, &name_bytes);
	if (ret)
		return pair_error("fi_getname", ret);
	ret = pair_swap(pair, &mine, &theirs, sizeof(mine));
	if (ret)
		return ret;
	ret = fi_av_insert(pair->av, theirs.name, 1, &pair->peer, 0, NULL);
	if (ret != 1)
		return pair_error("fi_av_insert", ret < 0 ? ret : -FI_EINVAL);
	pair->remote_base = theirs.base;
	pair->remote_key = theirs.key;
	return 0;
}

/* One message each way, so that the provider has connected. */
static int greet(struct pair *pair)
{
	int ret = pair_recv(pair, pair->pool_bytes + PAIR_CONTROL_RECV,
			    HELLO_BYTES);

	if (ret)
		return ret;
	ret = pair_send(pair, pair->pool_bytes + PAIR_CONTROL_SEND,
			HELLO_BYTES);
	return ret ? ret : pair_wait(pair);
}

int pair_open(struct pair *pair, const struct pair_options *options)
{
	int sockets[2];
	int ret;

	memset(pair, 0, sizeof(*pair));
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets)) {
		pair->socket = -1;
		return pair_error("socketpair", -errno);
	}
	pair->target = fork();
	pair->is_target = pair->target == 0;
	pair->socket = sockets[pair->is_target];
	close(sockets[!pair->is_target]);
	if (pair->target < 0)
		return pair_error("fork", -errno);
	ret = discover(pair, options);
	if (ret)
		return ret;
	ret = open_objects(pair);
	if (ret)
		return ret;
	ret = open_pool(pair, options->pool_bytes);
	if (ret)
		return ret;
	ret = introduce(pair);
	return ret ? ret : greet(pair);
}

int pair_close(struct pair *pair)
{
	struct fid *fids[] = {
		pair->ep ? &pair->ep->fid : NULL,
		pair->mr ? &pair->mr->fid : NULL,
		pair->av ? &pair->av->fid : NULL,
		pair->cq ? &pair->cq->fid : NULL,
		pair->domain ? &pair->domain->fid : NULL,
		pair->fabric ? &pair->fabric->fid : NULL,
	};
	int result = 0;
	int status;
	int ret;

	for (size_t i = 0; i < sizeof(fids) / sizeof(*fids); i++) {
		ret = fids[i] ? fi_close(fids[i]) : 0;
		if (ret)
			result = pair_error("fi_close", ret);
	}
	if (pair->info)
		fi_freeinfo(pair->info);
	if (pair->pool)
		munmap(pair->pool, pair->pool_bytes + PAIR_CONTROL_BYTES);
	if (pair->socket >= 0)
		close(pair->socket);
	if (pair->target > 0) {
		if (waitpid(pair->target, &status, 0) < 0)
			result = pair_error("waitpid", -errno);
		else if (status)
			result = pair_error("target process", -FI_EOTHER);
	}
	return result;
}

ssize_t pair_poll(struct pair *pair, struct fi_cq_entry *entries, size_t count)
{
	struct fi_cq_err_entry error = {0};
	ssize_t got = fi_cq_read(pair->cq, entries, count);

	if (got == -FI_EAGAIN)
		return 0;
	if (got == -FI_EAVAIL) {
		got = fi_cq_readerr(pair->cq, &error, 0);
		if (got == 1) {
			fprintf(stderr, "completion: %s, provider: %s (%d)\n",
				fi_strerror(abs(error.err)),
				fi_cq_strerror(pair->cq, error.prov_errno,
					       error.err_data, NULL, 0),
				error.prov_errno);
			return -abs(error.err);
		}
	}
	if (got < 0)
		return pair_error("fi_cq_read", (int) got);
	for (ssize_t i = 0; i < got; i++) {
		if (entries[i].op_context == &pair->send_context)
			pair->send_pending = false;
		else if (entries[i].op_context == &pair->recv_context)
			pair->recv_pending = false;
	}
	return got;
}

int pair_send(struct pair *pair, size_t offset_bytes, size_t bytes)
{
	struct fi_cq_entry entries[POLL_COUNT];
	ssize_t ret;

	pair->send_pending = true;
	for (;;) {
		ret = fi_send(pair->ep, pair->pool + offset_bytes, bytes,
			      pair->desc, pair->peer, &pair->send_context);
		if (ret == 0)
			return 0;
		if (ret != -FI_EAGAIN)
			return pair_error("fi_send", (int) ret);
		ret = pair_poll(pair, entries, POLL_COUNT);
		if (ret < 0)
			return (int) ret;
	}
}

int pair_recv(struct pair *pair, size_t offset_bytes, size_t bytes)
{
	ssize_t ret = fi_recv(pair->ep, pair->pool + offset_bytes, bytes,
			      pair->desc, FI_ADDR_UNSPEC, &pair->recv_context);

	if (ret)
		return pair_error("fi_recv", (int) ret);
	pair->recv_pending = true;
	return 0;
}

int pair_wait(struct pair *pair)
{
	struct fi_cq_entry entries[POLL_COUNT];
	ssize_t got;

	while (pair->send_pending || pair->recv_pending) {
		got = pair_poll(pair, entries, POLL_COUNT);
		if (got < 0)
			return (int) got;
	}
	return 0;
}

int pair_swap(struct pair *pair, const void *mine, void *theirs, size_t bytes)
{
	struct fi_cq_entry entries[POLL_COUNT];
	size_t got = 0;
	ssize_t ret;

	ret = send(pair->socket, mine, bytes, MSG_NOSIGNAL);
	if (ret != (ssize_t) bytes)
		return pair_error("send", ret < 0 ? -errno : -FI_EIO);
	while (got < bytes) {
		ret = recv(pair->socket, (uint8_t *) theirs + got, bytes - got,
			   MSG_DONTWAIT);
		if (ret == 0)
			return pair_error("the other process", -FI_ESHUTDOWN);
		if (ret > 0)
			got += (size_t) ret;
		else if (errno != EAGAIN && errno != EINTR)
			return pair_error("recv", -errno);
		ret = pair_poll(pair, entries, POLL_COUNT);
		if (ret < 0)
			return (int) ret;
	}
	return 0;
}
