/* What the loop asks of a worker; slots of the submission ring. */
#ifndef FAB_COMMAND_H
#define FAB_COMMAND_H

#include <stdint.h>

enum fab_command_kind {
	FAB_COMMAND_REGISTER =
		1,              /* object: struct fab_registration, borrowed */
	FAB_COMMAND_DEREGISTER, /* object: struct fab_registration, to the worker */
	FAB_COMMAND_PEER_ADD, /* object: struct fab_peer_spec, to the worker */
	FAB_COMMAND_PEER_ATTACH, /* peer, number, cookie, heartbeat_ns */
	FAB_COMMAND_PEER_BREAK,  /* peer; object: struct fab_error, to the
				    worker */
	FAB_COMMAND_PATH_BREAK,  /* peer; object: struct fab_error, to the
				    worker */
	FAB_COMMAND_PEER_REMOVE, /* peer */
	FAB_COMMAND_QUESTION,    /* peer; object: struct fab_question, to the
				    worker */
	FAB_COMMAND_FRAME, /* peer; object: struct fab_outgoing, to the worker
			    */
	FAB_COMMAND_TRANSFER, /* peer; object: struct fab_part, to the
				 worker */
	FAB_COMMAND_CANCEL,   /* object: struct fab_part, the worker's */
	FAB_COMMAND_RELEASE,  /* object: struct fab_part, the worker's */
	FAB_COMMAND_WATCH,    /* object: struct fab_watch, to the worker */
	FAB_COMMAND_STOP,
};

struct fab_command {
	uint32_t kind;
	uint32_t peer;
	uint32_t number;
	uint32_t reserved;
	uint64_t cookie;
	uint64_t heartbeat_ns;
	void *object;
};

#endif
