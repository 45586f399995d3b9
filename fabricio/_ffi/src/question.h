/* Questions: what became of a part whose path has failed?
 *
 * The worker that is asked, on another path, does not know. The question goes
 * to the loop, from there to the worker that had the path, and back the same
 * way. It belongs to whoever holds it.
 *
 * Q1 the path is closed before it is answered for: nothing is counted on it any
 *    more, and all that has arrived there was told the loop before. */
#ifndef FAB_QUESTION_H
#define FAB_QUESTION_H

#include "frame.h"

#include <stdint.h>

struct fab_engine;
struct fab_peer;
struct fab_worker;

enum fab_question_completion {
	FAB_QUESTION = 64, /* token: struct fab_question, to the loop */
};

struct fab_question {
	uint64_t sequence;
	uint32_t route;
	uint32_t from_path; /* that has failed */
	uint32_t from_immediate;
	uint32_t path; /* where it is answered */
	uint32_t immediate;
	uint32_t answered;
	int32_t outcome; /* fab_confirm_outcome */
};

/* 0, or -FI_ENOMEM. [worker] */
int fab_question_ask(struct fab_worker *worker, const struct fab_peer *peer,
		     const struct fab_announce *announce);

/* To the worker that it concerns next. [loop] */
void fab_question_pass(struct fab_engine *engine,
		       struct fab_question *question);

/* Find the answer, or give it to who asked. [worker] */
void fab_question_take(struct fab_worker *worker, struct fab_peer *peer,
		       struct fab_question *question);

#endif
