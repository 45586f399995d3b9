#include "cma.h"

#include "lane.h"
#include "peer.h"
#include "worker.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <rdma/fi_errno.h>
#include <sys/syscall.h>
#include <unistd.h>

void fab_cma_tell(struct fab_worker *worker, struct fab_peer *peer)
{
	struct fab_process process = {
		.id = (uint64_t) getpid(),
		.place = (uint64_t) (uintptr_t) &worker->token,
		.token = worker->token,
	};

	if (worker->lanes[0].attaches)
		fab_peer_send(worker, peer, FAB_FRAME_PROCESS, &process,
			      sizeof(process));
}

static int cma_ended(int descriptor)
{
	struct pollfd fd = {.fd = descriptor, .events = POLLIN};

	return poll(&fd, 1, 0) > 0;
}

int fab_cma_ended(const struct fab_cma *cma)
{
	return cma->process && cma_ended(cma->descriptor);
}

/* The descriptor comes first, and the look at it last: so the token was read
 * from the very process that it is for. */
static void cma_reach(struct fab_cma *cma, const struct fab_process *process)
{
	uint64_t token = 0;
	struct iovec near = {.iov_base = &token, .iov_len = sizeof(token)};
	struct iovec far = {
		.iov_base = (void *) (uintptr_t) process->place,
		.iov_len = sizeof(token),
	};
	pid_t id = (pid_t) process->id;
	int descriptor = (int) syscall(SYS_pidfd_open, id, 0);

	if (descriptor < 0)
		return;
	if (process_vm_readv(id, &near, 1, &far, 1, 0) != sizeof(token) ||
	    token != process->token || cma_ended(descriptor)) {
		close(descriptor);
		return;
	}
	cma->process = id;
	cma->descriptor = descriptor;
}

int fab_cma_hear(struct fab_worker *worker, struct fab_peer *peer,
		 const struct fab_process *process)
{
	if (!worker->lanes[0].attaches || !process->id ||
	    process->id > INT_MAX || !process->token)
		return -EPROTO;
	if (!peer->cma.process)
		cma_reach(&peer->cma, process);
	return 0;
}

int fab_cma_copy(const struct fab_cma *cma, int read, const struct iovec *near,
		 const struct iovec *far, uint32_t count, uint64_t bytes)
{
	ssize_t copied;

	if (cma_ended(cma->descriptor))
		return -FI_ESHUTDOWN;
	copied = read ? process_vm_readv(cma->process, near, count, far, count,
					 0) :
			process_vm_writev(cma->process, near, count, far, count,
					  0);
	if (copied == (ssize_t) bytes)
		return 0;
	if (copied >= 0)
		return -FI_EFAULT; /* from some segment on */
	return errno == ESRCH ? -FI_ESHUTDOWN : -errno;
}

void fab_cma_forget(struct fab_cma *cma)
{
	if (cma->process)
		close(cma->descriptor);
	cma->process = 0;
}
