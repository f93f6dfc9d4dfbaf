package telemetry

import (
	"errors"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
)

// ingestionScope is the scope of tokens that Application Insights accepts. The second slash belongs
// to the name of the resource, as in Azure's own libraries:
// https://github.com/Azure/azure-sdk-for-java, in sdk/monitor/azure-monitor-opentelemetry-exporter.
const ingestionScope = "https://monitor.azure.com//.default"

// ParseAuthentication reads how to authenticate at Application Insights, in the form that the
// Functions host knows: "Authorization=AAD" stands for the app's own managed identity, and
// "Authorization=AAD;ClientId=…" for a user-assigned one. A token is a secret, so to must be an
// https URL. Errors never quote s.
func ParseAuthentication(s string, to Connection) (azcore.TokenCredential, error) {
	values, ok := pairs(s)
	if !ok || !strings.EqualFold(values["authorization"], "AAD") {
		return nil, errors.New("must be Authorization=AAD, or Authorization=AAD;ClientId=… for a " +
			"user-assigned identity")
	}
	if scheme, _, _ := strings.Cut(to.endpoint, ":"); !strings.EqualFold(scheme, "https") {
		return nil, errors.New("needs an https IngestionEndpoint: a token is a secret")
	}
	var options azidentity.ManagedIdentityCredentialOptions
	if id := values["clientid"]; id != "" {
		options.ID = azidentity.ClientID(id)
	}
	return azidentity.NewManagedIdentityCredential(&options)
}

// pairs parses Key=Value pairs that are separated by semicolons. It returns the keys in lower case.
func pairs(s string) (values map[string]string, ok bool) {
	values = map[string]string{}
	for part := range strings.SplitSeq(s, ";") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		key, value, ok := strings.Cut(part, "=")
		if !ok {
			return nil, false
		}
		values[strings.ToLower(strings.TrimSpace(key))] = strings.TrimSpace(value)
	}
	return values, true
}
