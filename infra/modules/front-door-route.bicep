// The way from Front Door to the site, and what it may cache on it.

@description('Name of the profile.')
param profileName string

@description('Name of the endpoint.')
param endpointName string

@description('Resource ID of the domain. Empty: none.')
param customDomainId string

@description('Host name of the site.')
param originHostName string

@description('Whether it caches. On a route that does, Front Door does not pass on Accept, and keeps what says nothing of caching for days.')
param caches bool

resource profile 'Microsoft.Cdn/profiles@2025-12-01' existing = {
  name: profileName
}

resource endpoint 'Microsoft.Cdn/profiles/afdEndpoints@2025-12-01' existing = {
  parent: profile
  name: endpointName
}

// No probes: with one origin there is nothing to choose, and they would come from every place of Front Door.
resource originGroup 'Microsoft.Cdn/profiles/originGroups@2025-12-01' = {
  parent: profile
  name: 'site'
  properties: {
    loadBalancingSettings: {
      sampleSize: 4
      successfulSamplesRequired: 3
      additionalLatencyInMilliseconds: 50
    }
    sessionAffinityState: 'Disabled'
  }
}

resource origin 'Microsoft.Cdn/profiles/originGroups/origins@2025-12-01' = {
  parent: originGroup
  name: 'site'
  properties: {
    hostName: originHostName
    originHostHeader: originHostName
    httpPort: 80
    httpsPort: 443
    priority: 1
    weight: 1000
    enabledState: 'Enabled'
    enforceCertificateNameCheck: true
  }
}

resource ruleSet 'Microsoft.Cdn/profiles/ruleSets@2025-12-01' = if (caches) {
  parent: profile
  name: 'cache'
}

// Every response of the handler says whether it may be cached (REDIRECT_MAX_AGE_SECONDS), and Front Door goes
// by that. What says nothing comes from the platform, such as an error while a new version starts: by default Front
// Door would keep that for days.
//
// Which status codes Front Door keeps, its documentation does not list. The header X-Cache of a second request for the
// same redirect tells: TCP_HIT means that it was kept.
resource rule 'Microsoft.Cdn/profiles/ruleSets/rules@2025-12-01' = if (caches) {
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

resource route 'Microsoft.Cdn/profiles/afdEndpoints/routes@2025-12-01' = {
  parent: endpoint
  name: 'site'
  properties: {
    enabledState: 'Enabled'
    originGroup: {
      id: originGroup.id
    }
    customDomains: empty(customDomainId) ? [] : [
      {
        id: customDomainId
      }
    ]
    ruleSets: caches ? [
      {
        id: ruleSet.id
      }
    ] : []
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
    // A redirect is the same whatever stands behind the alias' question mark. A QR code is not, and says private.
    cacheConfiguration: caches ? {
      queryStringCachingBehavior: 'IgnoreQueryString'
    } : null
  }
  // Named nowhere above, and needed: a group has to have an origin, and a set its rule, before a route uses them.
  dependsOn: [
    origin
    rule
  ]
}
