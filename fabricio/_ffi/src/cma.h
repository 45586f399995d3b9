/* Cross memory attach: pages copied straight between two processes of a host,
 * by process_vm_writev(2) and process_vm_readv(2), without the provider.
 *
 * libfabric's provider for shared memory copies by the same calls, but holds a
 * place in the target's queue meanwhile: nobody is heard behind the place of a
 * process that was killed or stopped in the midst of a copy. A copy of ours
 * holds nothing of the target's, and takes many pages at a time.
 *
 * A1 nothing is copied before we have read the process's token where it says
 *    that it is (FAB_FRAME_PROCESS): an id of another PID namespace shows, and
 *    a process that may not be reached.
 * A2 nothing is copied once the process was seen to have ended, for its id may
 *    become another's. It is looked at before each copy.
 * A3 a copy is over when the call returns: nothing of it is ever out.
 * A4 the peer is asked whether the key is good, and nothing is copied before it
 *    has said so: the copy asks for none.
 * Sources: process_vm_readv(2), pidfd_open(2). */
#ifndef FAB_CMA_H
#define FAB_CMA_H

#include "frame.h"

#include <stdint.h>
#include <sys/uio.h>

struct fab_peer;
struct fab_worker;

/* Segments of one copy. */
#define FAB_CMA_SEGMENTS 256u

/* The process behind a peer. The worker's. */
struct fab_cma {
	int process;    /* its id; 0: not reached */
	int descriptor; /* owned: its pidfd; meaningless while process is 0 */
};

/* Tell the peer where it finds us, if it may be a process of this host.
 * [worker] */
void fab_cma_tell(struct fab_worker *worker, struct fab_peer *peer);

/* The peer says where it is to be found: look. 0, or -EPROTO. [worker] */
int fab_cma_hear(struct fab_worker *worker, struct fab_peer *peer,
		 const struct fab_process *process);

/* Whether it was reached and has ended. */
int fab_cma_ended(const struct fab_cma *cma);

/* Copy all segments, `far` being memory of the process, of equal lengths one by
 * one. 0; -FI_ESHUTDOWN: it has ended; -FI_EFAULT: memory is not there;
 * or another code. [worker] */
int fab_cma_copy(const struct fab_cma *cma, int read, const struct iovec *near,
		 const struct iovec *far, uint32_t count, uint64_t bytes);

/* Forget the process. Idempotent. */
void fab_cma_forget(struct fab_cma *cma);

#endif
