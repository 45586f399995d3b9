#include "question.h"

#include "engine.h"
#include "peer.h"
#include "route.h"

#include <rdma/fi_errno.h>
#include <stdlib.h>

static void question_tell(struct fab_worker *worker,
			  struct fab_question *question)
{
	fab_worker_report(worker, FAB_QUESTION, question->route,
			  (uint64_t) (uintptr_t) question, NULL);
}

int fab_question_ask(struct fab_worker *worker, const struct fab_peer *peer,
		     const struct fab_announce *announce)
{
	struct fab_question *question = calloc(1, sizeof(*question));

	if (!question)
		return -FI_ENOMEM;
	question->sequence = announce->sequence;
	question->route = peer->route;
	question->from_path = announce->from_path;
	question->from_immediate = announce->from_immediate;
	question->path = peer->path;
	question->immediate = announce->immediate;
	question_tell(worker, question);
	return 0;
}

void fab_question_pass(struct fab_engine *engine, struct fab_question *question)
{
	const struct fab_route *route =
		fab_route_find(&engine->routes, question->route);
	uint32_t path =
		question->answered ? question->path : question->from_path;

	/* Who asks and gets no answer asks again, and gives up some day. */
	if (!route || route->removing ||
	    fab_engine_reserve(engine, 1ull << fab_route_worker(engine, path),
			       1)) {
		free(question);
		return;
	}
	fab_engine_command(engine, fab_route_worker(engine, path),
			   FAB_COMMAND_QUESTION, route->paths[path].slot,
			   question);
}

void fab_question_take(struct fab_worker *worker, struct fab_peer *peer,
		       struct fab_question *question)
{
	struct fab_error error;

	if (!peer || peer->route != question->route ||
	    (peer->state != FAB_PEER_ATTACHED &&
	     peer->state != FAB_PEER_BROKEN)) {
		free(question);
		return;
	}
	if (question->answered) {
		if (peer->state == FAB_PEER_ATTACHED)
			fab_confirm_answer(worker, peer, question->immediate,
					   question->outcome);
		free(question);
		return;
	}
	fab_error_set(&error, -FI_EHOSTUNREACH, "", 0,
		      "the peer has lost its NICs there");
	fab_peer_sever(worker, peer, &error); /* Q1 */
	question->answered = 1;
	question->outcome = fab_confirm_outcome(
		&peer->arrivals, question->from_immediate, question->sequence);
	question_tell(worker, question);
}
