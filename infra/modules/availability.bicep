// This test checks from outside whether the service responds.

@description('Name of the test and of its alert.')
param name string

@description('What is asked for.')
param url string

@description('Where it is asked from.')
param places array

@description('Seconds between two runs from one place.')
param frequencySeconds int

@description('Whether its alert is on.')
param alertEnabled bool

@description('The Application Insights component.')
param applicationInsightsId string

@description('Who is told. Empty: nobody.')
param actionGroupId string

@description('The Azure region.')
param location string

@description('Tags of the resources.')
param tags object

resource test 'Microsoft.Insights/webtests@2022-06-15' = {
  name: name
  location: location
  // Application Insights finds its tests by this tag.
  tags: union(tags, {
    'hidden-link:${applicationInsightsId}': 'Resource'
  })
  kind: 'standard'
  properties: {
    SyntheticMonitorId: name
    Name: name
    Description: 'GET /api/health, which makes no storage call'
    Kind: 'standard'
    Enabled: true
    Frequency: frequencySeconds
    Timeout: 30
    RetryEnabled: true
    Locations: [
      for place in places: {
        Id: place
      }
    ]
    Request: {
      RequestUrl: url
      HttpVerb: 'GET'
      ParseDependentRequests: false
      FollowRedirects: false
    }
    ValidationRules: {
      ExpectedHttpStatusCode: 200
      SSLCheck: true
      SSLCertRemainingLifetimeCheck: 7
    }
  }
}

// If only one place fails, the internet is the cause more often than the service.
resource alert 'Microsoft.Insights/metricAlerts@2018-03-01' = {
  name: name
  location: 'global'
  tags: tags
  properties: {
    description: 'The service does not respond at ${url} from at least two places.'
    severity: 1
    enabled: alertEnabled
    autoMitigate: true
    scopes: [
      test.id
      applicationInsightsId
    ]
    evaluationFrequency: 'PT5M'
    windowSize: 'PT30M'
    criteria: {
      'odata.type': 'Microsoft.Azure.Monitor.WebtestLocationAvailabilityCriteria'
      webTestId: test.id
      componentId: applicationInsightsId
      failedLocationCount: 2
    }
    actions: empty(actionGroupId)
      ? []
      : [
          {
            actionGroupId: actionGroupId
          }
        ]
  }
}
