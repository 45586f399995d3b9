#include "error.h"

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int fab_error_set(struct fab_error *error, int code, const char *call,
		  int provider_code, const char *text)
{
	error->code = code;
	error->provider_code = provider_code;
	snprintf(error->call, sizeof(error->call), "%s", call);
	snprintf(error->text, sizeof(error->text), "%s", text ? text : "");
	return code;
}

struct fab_error *fab_error_copy(const struct fab_error *error)
{
	struct fab_error *copy = malloc(sizeof(*copy));

	if (copy)
		*copy = *error;
	return copy;
}

void fab_error_keep_first(struct fab_error **first,
			  struct fab_completion *completion)
{
	if (*first)
		free(completion->error);
	else
		*first = completion->error;
	completion->error = NULL;
}

void fab_error_free(struct fab_error *error)
{
	free(error);
}

const char *fab_strerror(int code)
{
	return fi_strerror(code < 0 ? -code : code);
}

static const struct {
	int code;
	const char *name;
} names[] = {
#define NAME(x) {x, #x}
	NAME(FI_EPERM),        NAME(FI_ENOENT),       NAME(FI_EINTR),
	NAME(FI_EIO),          NAME(FI_E2BIG),        NAME(FI_EBADF),
	NAME(FI_EAGAIN),       NAME(FI_ENOMEM),       NAME(FI_EACCES),
	NAME(FI_EFAULT),       NAME(FI_EBUSY),        NAME(FI_ENODEV),
	NAME(FI_EINVAL),       NAME(FI_EMFILE),       NAME(FI_ENOSPC),
	NAME(FI_ENOSYS),       NAME(FI_ENOMSG),       NAME(FI_ENODATA),
	NAME(FI_EOVERFLOW),    NAME(FI_EMSGSIZE),     NAME(FI_ENOPROTOOPT),
	NAME(FI_EOPNOTSUPP),   NAME(FI_EADDRINUSE),   NAME(FI_EADDRNOTAVAIL),
	NAME(FI_ENETDOWN),     NAME(FI_ENETUNREACH),  NAME(FI_ECONNABORTED),
	NAME(FI_ECONNRESET),   NAME(FI_ENOBUFS),      NAME(FI_EISCONN),
	NAME(FI_ENOTCONN),     NAME(FI_ESHUTDOWN),    NAME(FI_ETIMEDOUT),
	NAME(FI_ECONNREFUSED), NAME(FI_EHOSTDOWN),    NAME(FI_EHOSTUNREACH),
	NAME(FI_EALREADY),     NAME(FI_EINPROGRESS),  NAME(FI_EREMOTEIO),
	NAME(FI_ECANCELED),    NAME(FI_EKEYREJECTED), NAME(FI_EOTHER),
	NAME(FI_ETOOSMALL),    NAME(FI_EOPBADSTATE),  NAME(FI_EAVAIL),
	NAME(FI_EBADFLAGS),    NAME(FI_ENOEQ),        NAME(FI_EDOMAIN),
	NAME(FI_ENOCQ),        NAME(FI_ECRC),         NAME(FI_ETRUNC),
	NAME(FI_ENOKEY),       NAME(FI_ENOAV),        NAME(FI_EOVERRUN),
	NAME(FI_ENORX),
#undef NAME
};

const char *fab_errno_name(int code)
{
	if (code < 0)
		code = -code;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (names[i].code == code)
			return names[i].name;
	}
	return "FI_EOTHER";
}

int fab_error_is_peer(int code)
{
	switch (code < 0 ? -code : code) {
	/* We never cancel: the provider has given up the connection. */
	case FI_ECANCELED:
	case FI_ECONNREFUSED:
	case FI_ECONNRESET:
	case FI_ECONNABORTED:
	case FI_ENOTCONN:
	case FI_ESHUTDOWN:
	case FI_ETIMEDOUT:
	case FI_EHOSTDOWN:
	case FI_EHOSTUNREACH:
	case FI_ENETUNREACH:
	case FI_ENETDOWN:
		return 1;
	default:
		return 0;
	}
}
