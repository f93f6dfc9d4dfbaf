// The route from Front Door to the sites, and its caching.

@description('Name of the profile and of its endpoint.')
param profileName string

@description('Domains of one\'s own, each with the name of its resource.')
param domains array

@description('Names of the sites, one in each region.')
param siteNames array

@description('Seconds between two probes of a site from one place, if there are several sites.')
param probeSeconds int

@description('Whether it caches. On a route that does, Front Door does not pass on Accept, and keeps what says nothing of caching for days.')
param caches bool

resource profile 'Microsoft.Cdn/profiles@2025-06-01' existing = {
  name: profileName
}

resource endpoint 'Microsoft.Cdn/profiles/afdEndpoints@2025-06-01' existing = {
  parent: profile
  name: profileName
}

resource sites 'Microsoft.Web/sites@2025-03-01' existing = [
  for siteName in siteNames: {
    name: siteName
  }
]

// With one origin there is nothing to choose, so there are no probes. They would come from every
// place of Front Door.
//
// With two origins, requests go to the nearer one, or to either if both are about equally near. One
// failed probe takes an origin out, and two successful ones bring it back, since going to the other
// region costs a request next to nothing. If no origin is healthy, Front Door uses both as if they
// were.
resource originGroup 'Microsoft.Cdn/profiles/originGroups@2025-06-01' = {
  parent: profile
  name: 'site'
  properties: {
    loadBalancingSettings: {
      sampleSize: 2
      successfulSamplesRequired: 2
      additionalLatencyInMilliseconds: 50
    }
    healthProbeSettings: length(siteNames) == 1
      ? null
      : {
          probePath: '/api/ready'
          probeRequestType: 'HEAD'
          probeProtocol: 'Https'
          probeIntervalInSeconds: probeSeconds
        }
    sessionAffinityState: 'Disabled'
  }
}

resource origins 'Microsoft.Cdn/profiles/originGroups/origins@2025-06-01' = [
  for (siteName, i) in siteNames: {
    parent: originGroup
    name: i == 0 ? 'site' : 'second'
    properties: {
      hostName: sites[i].properties.defaultHostName
      originHostHeader: sites[i].properties.defaultHostName
      httpPort: 80
      httpsPort: 443
      priority: 1
      weight: 1000
      enabledState: 'Enabled'
      enforceCertificateNameCheck: true
    }
  }
]

// A site gets its own name as Host. This header tells it which domain a request is for. What a
// client sends under the same name is overwritten, or clients could choose.
resource hostRuleSet 'Microsoft.Cdn/profiles/ruleSets@2025-06-01' = {
  parent: profile
  name: 'host'
}

resource hostRule 'Microsoft.Cdn/profiles/ruleSets/rules@2025-06-01' = {
  parent: hostRuleSet
  name: 'overwrite'
  properties: {
    order: 1
    matchProcessingBehavior: 'Continue'
    conditions: []
    actions: [
      {
        name: 'ModifyRequestHeader'
        parameters: {
          typeName: 'DeliveryRuleHeaderActionParameters'
          headerAction: 'Overwrite'
          headerName: 'X-Tiney-Host'
          value: '{hostname}'
        }
      }
    ]
  }
}

resource ruleSet 'Microsoft.Cdn/profiles/ruleSets@2025-06-01' = if (caches) {
  parent: profile
  name: 'cache'
}

// Every response of the handler says whether it may be cached (REDIRECT_MAX_AGE_SECONDS), and Front
// Door follows that. A response that does not say so comes from the platform, such as an error
// while a new version starts. By default, Front Door would keep such a response for days.
//
// Front Door's documentation does not list the status codes that it caches. The header X-Cache of a
// second request for the same redirect tells: TCP_HIT means that it was cached.
resource rule 'Microsoft.Cdn/profiles/ruleSets/rules@2025-06-01' = if (caches) {
  parent: ruleSet
  name: 'unsaid'
  properties: {
    order: 1
    matchProcessingBehavior: 'Continue'
    conditions: []
    actions: [
      {
        name: 'RouteConfigurationOverride'
        parameters: {
          typeName: 'DeliveryRuleRouteConfigurationOverrideActionParameters'
          cacheConfiguration: {
            cacheBehavior: 'OverrideIfOriginMissing'
            cacheDuration: '00:00:01'
            queryStringCachingBehavior: 'IgnoreQueryString'
            isCompressionEnabled: 'Disabled'
          }
        }
      }
    ]
  }
}

resource route 'Microsoft.Cdn/profiles/afdEndpoints/routes@2025-06-01' = {
  parent: endpoint
  name: 'site'
  properties: {
    enabledState: 'Enabled'
    originGroup: {
      id: originGroup.id
    }
    customDomains: map(domains, domain => {
      id: resourceId('Microsoft.Cdn/profiles/customDomains', profileName, domain.name)
    })
    ruleSets: concat(
      [
        {
          id: hostRuleSet.id
        }
      ],
      caches
        ? [
            {
              id: ruleSet.id
            }
          ]
        : []
    )
    patternsToMatch: [
      '/*'
    ]
    supportedProtocols: [
      'Http'
      'Https'
    ]
    httpsRedirect: 'Enabled'
    forwardingProtocol: 'HttpsOnly'
    linkToDefaultDomain: 'Enabled'
    // A redirect does not depend on the query. A QR code does, and its response says private.
    cacheConfiguration: caches
      ? {
          queryStringCachingBehavior: 'IgnoreQueryString'
        }
      : null
  }
  // The properties above do not refer to these, but a route needs them first: its origin group must
  // have an origin, and its rule sets rules.
  dependsOn: [
    origins
    hostRule
    rule
  ]
}

@description('The host names that Azure gave the sites.')
output hostNames array = [for (siteName, i) in siteNames: sites[i].properties.defaultHostName]
