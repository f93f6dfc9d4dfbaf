// This module has the part of Front Door that can exist before the site. The site has to know Front
// Door's ID, since it accepts requests only from there.

@description('Name of the profile and of its endpoint.')
param name string

@description('Name of the firewall policy. Letters and digits.')
param policyName string

@description('The tier.')
param sku string

@description('Tags of the resources.')
param tags object

@description('Domains of one\'s own, each with the name of its resource and its host.')
param domains array

@description('Requests per minute and address.')
param requestsPerMinute int

@description('New links per minute and address.')
param shortensPerMinute int

@description('Whether requests and probes are logged.')
param accessLogs bool

@description('The Log Analytics workspace.')
param workspaceId string

resource profile 'Microsoft.Cdn/profiles@2025-06-01' = {
  name: name
  location: 'global'
  tags: tags
  sku: {
    name: sku
  }
  properties: {
    originResponseTimeoutSeconds: 60
  }
}

resource endpoint 'Microsoft.Cdn/profiles/afdEndpoints@2025-06-01' = {
  parent: profile
  name: name
  location: 'global'
  tags: tags
  properties: {
    enabledState: 'Enabled'
  }
}

resource customDomains 'Microsoft.Cdn/profiles/customDomains@2025-06-01' = [
  for domain in domains: {
    parent: profile
    name: domain.name
    properties: {
      hostName: domain.host
      tlsSettings: {
        certificateType: 'ManagedCertificate'
        minimumTlsVersion: 'TLS12'
      }
    }
  }
]

var customDomainIds = map(domains, domain => {
  id: resourceId('Microsoft.Cdn/profiles/customDomains', name, domain.name)
})

// The policy has rate limits and no managed rules: a long URL in the body of a request to shorten
// looks like most of what managed rules look for.
//
// Links are made only by POST, on /, /api/shorten, /api/links/bulk and /api/import.
resource policy 'Microsoft.Network/FrontDoorWebApplicationFirewallPolicies@2025-03-01' = {
  name: policyName
  location: 'global'
  tags: tags
  sku: {
    name: sku
  }
  properties: {
    policySettings: {
      enabledState: 'Enabled'
      mode: 'Prevention'
      customBlockResponseStatusCode: 429
    }
    customRules: {
      rules: [
        {
          name: 'Shorten'
          priority: 1
          enabledState: 'Enabled'
          ruleType: 'RateLimitRule'
          rateLimitDurationInMinutes: 1
          rateLimitThreshold: shortensPerMinute
          matchConditions: [
            {
              matchVariable: 'RequestMethod'
              operator: 'Equal'
              matchValue: [
                'POST'
              ]
            }
          ]
          action: 'Block'
        }
        {
          name: 'All'
          priority: 2
          enabledState: 'Enabled'
          ruleType: 'RateLimitRule'
          rateLimitDurationInMinutes: 1
          rateLimitThreshold: requestsPerMinute
          matchConditions: [
            {
              // Every request has a Host header.
              matchVariable: 'RequestHeader'
              selector: 'Host'
              operator: 'GreaterThanOrEqual'
              matchValue: [
                '0'
              ]
            }
          ]
          action: 'Block'
        }
      ]
    }
  }
}

resource securityPolicy 'Microsoft.Cdn/profiles/securityPolicies@2025-06-01' = {
  parent: profile
  name: 'rate-limits'
  properties: {
    parameters: {
      type: 'WebApplicationFirewall'
      wafPolicy: {
        id: policy.id
      }
      associations: [
        {
          domains: concat(
            [
              {
                id: endpoint.id
              }
            ],
            customDomainIds
          )
          patternsToMatch: [
            '/*'
          ]
        }
      ]
    }
  }
  // Their IDs are made from their names, so nothing above refers to them.
  dependsOn: [
    customDomains
  ]
}

resource logs 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'firewall'
  scope: profile
  properties: {
    workspaceId: workspaceId
    logs: [
      {
        category: 'FrontDoorWebApplicationFirewallLog'
        enabled: true
      }
      {
        category: 'FrontDoorAccessLog'
        enabled: accessLogs
      }
      {
        category: 'FrontDoorHealthProbeLog'
        enabled: accessLogs
      }
    ]
  }
}

@description('The host name that Azure gave the endpoint.')
output endpointHostName string = endpoint.properties.hostName

@description('What Front Door sends as X-Azure-FDID.')
output frontDoorId string = profile.properties.frontDoorId
